# C variables: a compiled module looks its Python globals up at every use.
cdef object get_ident

cdef class Turn:
    cdef object __weakref__
    cdef str _what
    cdef list _free
    cdef object _holder
    cpdef object enter(self)
    cpdef object leave(self)
    cdef object _wait(self, object me)
