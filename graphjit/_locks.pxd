from graphjit._interpreter cimport thread_ident

# C variables: a compiled module looks its Python globals up at every use.
cdef unsigned long long _NOBODY

cdef class Turn:
    cdef object __weakref__
    cdef str _what
    cdef list _free
    cdef unsigned long long _holder
    cpdef object enter(self)
    cpdef object leave(self)
    cdef object _wait(self, unsigned long long me)

cdef class Gate:
    cdef object __weakref__
    cdef list _inside
    cdef double _until
    cdef unsigned long long _keeper
    cpdef object enter(self)
    cpdef object leave(self)
    cpdef object close(self)
    cpdef object open(self)
