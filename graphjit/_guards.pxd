from graphjit._interpreter cimport function_attribute

# C variables: a compiled module looks its Python globals up at every use.
cdef object _missing

cdef class Guard:
    cdef public object holder
    cdef public str name
    cdef public object value
    cdef public str what
    cdef dict _space
    cpdef object current(self)
    cpdef bint holds(self)

cdef class CellGuard(Guard):
    pass

cdef class AttributeGuard(Guard):
    pass

cdef class FunctionGuard(Guard):
    pass

cdef class ArrayGuard(Guard):
    pass

cdef class ItemsGuard(Guard):
    pass

cpdef Guard changed(tuple guards)
