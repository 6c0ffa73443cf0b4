cdef class BoundImage:
    cdef object _data
    cdef object _pointers
    cdef public object address
    cdef object _words
    cdef tuple _relocations
    cdef public object slots
    cpdef object bind(self, tuple slots)
