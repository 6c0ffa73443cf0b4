from graphjit.backends.cuda.calls cimport write_words

cdef class BoundImage:
    cdef object _data
    cdef object _pointers
    cdef public object address
    cdef bytes _relocations
    cdef public object words
    cpdef object bind(self, list words)
