cdef class Executable:
    cdef object __weakref__
    cpdef object run(self, list pointers, object scalars, object stream)
