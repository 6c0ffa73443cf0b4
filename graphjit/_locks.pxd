cdef class Turn:
    cdef object __weakref__
    cdef str _what
    cdef object _lock
    cdef object _holder
    cpdef object enter(self)
    cpdef object leave(self)
