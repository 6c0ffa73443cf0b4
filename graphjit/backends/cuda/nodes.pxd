from graphjit._memory cimport Memory
from graphjit.backends.cuda.image cimport BoundImage

cdef class Instance:
    cdef public object handle
    cdef public unsigned long long address
    cdef public bint is_open

cdef class KernelNode:
    cdef public object handle
    cdef public unsigned long long address
    cdef public unsigned long long params_address
    cdef public BoundImage image
    cdef public long long mark
    cdef public object params

cdef class StaticInput:
    cdef public Py_ssize_t slot
    cdef public object nbytes
    cdef public object copy
    cdef public bint written
    cdef public Memory memory
