from graphjit._memory cimport Allocator, Memory
from graphjit._interpreter cimport reference_count

# C variables: a compiled module looks its Python globals up at every use.
cdef object driver
cdef long long _alone

cdef class Block:
    cdef public object address
    cdef public object buffer
    cdef public long long size

cdef class Shelf:
    cdef public object stream
    cdef public long long size
    cdef public list blocks
    cdef public bint is_open

cdef class DeviceMemory(Memory):
    cdef public Pool _pool
    cdef public Shelf _shelf
    cdef public Block _block
    cdef object _hold(self, Pool pool, Shelf shelf, Block block, object nbytes)

cdef class AdoptedMemory(Memory):
    cdef public object owner
    cdef object _index

cdef class Pool:
    cdef object __weakref__
    cdef public object index
    cdef object _core
    cdef object _lock
    cdef public dict _shelves
    cdef public long long _kept
    cdef long long _limit
    cpdef DeviceMemory take_from(self, Shelf shelf, object nbytes)
    cpdef bint has_room_for(self, Shelf shelf)
    cpdef object give(self, DeviceMemory memory, Block block)

cdef class DeviceAllocator(Allocator):
    cdef Pool _pool
    cdef object _nbytes
    cdef Shelf _shelf
