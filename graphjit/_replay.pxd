cimport cython
from graphjit._inputs cimport Input
from graphjit._memory cimport Allocator, Handle, Memory
from graphjit.backends.executable cimport Executable

# C variables: a compiled module looks its Python globals up at every use.
cdef type Array
cdef object GONE
cdef object _donation
cdef object _scalars

cdef class Result:
    cdef public int kind
    cdef public Py_ssize_t index
    cdef public Py_ssize_t offset
    cdef public object aval
    cdef public object value

cdef class Replay:
    cdef object __weakref__
    cdef tuple _inputs
    cdef tuple _closures
    cdef tuple _allocators
    cdef tuple _scalars
    cdef tuple _scalar_inputs
    cdef tuple _results
    cdef Result _only
    cdef object _unflatten
    cdef object _overlaps
    cdef Executable _executable
    cdef object _for_overlaps
    cdef bint _evaluates
    cdef bint _holds
    cdef bint _makes_one_array
    cdef tuple _donated
    cdef object _static
    cdef str _name
    cdef public long long used
    cpdef object run(self, tuple leaves, tuple given, object stream, tuple closures=*)

@cython.locals(kind=cython.int)
cdef object _leaf(Result result, tuple leaves, tuple given, tuple closures, list made, object scalars)
