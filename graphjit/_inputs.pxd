from graphjit._memory cimport Handle

cdef class Input:
    cdef public Py_ssize_t leaf
    cdef public Py_ssize_t low
    cdef public bint written
    cdef public str name
    cpdef Handle alive(self, tuple leaves, str function)
