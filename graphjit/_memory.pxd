from graphjit._interpreter cimport reference_count

cdef class _Probe:
    pass

cdef class Memory:
    cdef object __weakref__
    cdef public object address
    cdef public object nbytes
    cdef public object stream
    cdef public object others
    cdef public bint exported
    cdef public object _lost

cdef class Allocator:
    cdef object __weakref__
    cpdef Memory take(self, object stream)

cdef class Handle:
    cdef object __weakref__
    cdef public Memory _memory
    cdef public object _start
    cdef public object _aval
