from graphjit._locks cimport Turn

# C variables: a compiled module looks its Python globals up at every use.
cdef object CURSOR
cdef object run_signal_handlers
cdef int CALLS
cdef object _FAILURE
cdef tuple _NO_FAILURE

cdef class Program:
    cdef object __weakref__
    cdef public object slot_buffer
    cdef object _pool
    cdef object _memory
    cdef public object _address
    cdef object _cursor
    cdef bint _spread
    cdef object _steps
    cdef long long _failure
    cdef object _scratch_bytes
    cdef public object _native
    cdef bint _closed
    cdef Turn _turn
    cdef object _scratch
    cdef object _scratch_address
    cdef object _play(self, object pool)
    cpdef object run(self, object slots=*, object values=*)
