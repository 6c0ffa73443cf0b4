cdef class ScalarWords:
    cdef tuple _slots
    cdef object _pack
    cdef object _unpack
    cdef tuple _plain
    cpdef object of(self, object values)
