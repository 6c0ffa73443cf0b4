from graphjit._locks cimport Turn
from graphjit.backends.cuda.calls cimport launch_kernel
from graphjit.backends.cuda.image cimport BoundImage

# C variables: a compiled module looks its Python globals up at every use.
cdef object driver
cdef object check
cdef int _no_context

cdef class Launcher:
    cdef object __weakref__
    cdef object _device
    cdef unsigned long long _handle
    cdef list _memory
    cdef object _stream
    cdef Turn _turn
    cpdef object launch(self, list pointers, tuple scalars, object stream)
    cpdef object _change_stream(self, object stream)

cdef class SingleLaunch(Launcher):
    cdef BoundImage _image
    cdef tuple _kernel
    cdef object _last
    cdef str _name
    cdef public long long same
    cdef public long long rebound
