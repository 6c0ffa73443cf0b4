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
