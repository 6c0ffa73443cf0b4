cimport cython
from graphjit._locks cimport Turn
from graphjit._memory cimport Memory
from graphjit.backends.cuda.calls cimport current_context, launch, repoint
from graphjit.backends.cuda.image cimport BoundImage
from graphjit.backends.cuda.nodes cimport Instance, KernelNode, StaticInput

# C variables: a compiled module looks its Python globals up at every use.
cdef object check
cdef object activate
cdef object is_finalizing
cdef double _REPOINT
cdef long long _SAMPLED
cdef long long _MAX_KNOWN
cdef object driver

cdef class Instances:
    cdef object _device
    cdef unsigned long long _context
    cdef public object _graph
    cdef list _nodes
    cdef list _memory
    cdef object _allocate
    cdef Turn _turn
    cdef long long _mark
    cdef long long _unpaid
    cdef list _users
    cdef tuple _always
    cdef tuple _paying
    cdef double _price
    cdef KernelNode _single
    cdef public dict _known
    cdef public Instance _exec
    cdef long long _permanent
    cdef list _bound
    cdef list _latest
    cdef list _previous
    cdef Instance _launching
    cdef Instance _launched
    cdef object _stream
    cdef unsigned long long _handle
    cdef public long long same
    cdef public long long recalled
    cdef public long long rebound
    cdef public long long copied
    cdef public long long repointed
    cpdef launch(self, list pointers, tuple scalars, object stream)
    cdef object _swap(self)
    cdef object _change(self, list words, object stream)
    cdef Instance _choose(self, list words, object stream)
    cdef Instance _bind(self, list words, object stream)
    cdef bint _would_copy(self, StaticInput static, list words)
    cdef object _repoint(self, list words, list stale)
    cdef list _stale(self, list words, tuple copied)
