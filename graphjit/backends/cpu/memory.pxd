from graphjit._memory cimport Allocator, Memory

cdef class _Blocks:
    cdef object _lock
    cdef dict _free
    cdef long long _kept

cdef class HostMemory(Memory):
    cdef object _block
    cdef object _size

cdef class AdoptedMemory(Memory):
    cdef public object owner

cdef class HostAllocator(Allocator):
    cdef object _nbytes
