cimport cython
from graphjit._memory cimport Memory

cdef class HostMemory(Memory):
    cdef object _block
    cdef object _size

cdef class AdoptedMemory(Memory):
    cdef public object owner
