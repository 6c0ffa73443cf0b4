cimport cython
from graphjit._memory cimport Memory

cdef class DeviceMemory(Memory):
    cdef public Pool _pool
    cdef public object _buffer

cdef class AdoptedMemory(Memory):
    cdef public object owner

cdef class Pool:
    cdef object __weakref__
    cdef object _index
    cdef object _core
    cdef object _lock
    cdef public dict _free
    cdef public object _kept
    cdef object _limit
    cpdef give(self, DeviceMemory memory)
