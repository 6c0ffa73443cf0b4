from graphjit._memory cimport Allocator, Memory
from graphjit._interpreter cimport reference_count

# C variables: a compiled module looks its Python globals up at every use.
cdef _Blocks _blocks
cdef long long _ALIGNMENT
cdef long long _PAGE
cdef long long _KEPT_BYTES
cdef long long _alone

cdef class _Blocks:
    cdef object _lock
    cdef dict _free
    cdef long long _kept
    cpdef object take(self, object size)
    cpdef object give(self, object size, object block)

cdef class HostMemory(Memory):
    cdef object _block
    cdef object _size
    cdef object _hold(self, object nbytes, object block)

cdef class AdoptedMemory(Memory):
    cdef public object owner

cdef class HostAllocator(Allocator):
    cdef object _nbytes
