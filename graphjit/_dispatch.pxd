cimport cython
from graphjit._activity cimport Activity
from graphjit._guards cimport changed
from graphjit._locks cimport Gate
from graphjit._memory cimport Handle
from graphjit._replay cimport Replay

# C variables: a compiled module looks its Python globals up at every use.
cdef object current_stream
cdef object current_trace
cdef object IntegerRangeError
cdef object _flatten
cdef object _namespace
cdef Gate _gate

cdef class Known:
    cdef public object owner
    cdef public Replay replay
    cdef public tuple guards
    cdef public object order
    cdef public object defaults
    cdef public tuple kind
    cdef public bint is_direct

cdef class Dispatcher:
    cdef object __weakref__
    cdef Activity _activity
    cdef public dict _known
    cdef public Known _last
    cdef public object _statics
    cdef public str _title
    cdef public set _foreign
    cdef public set _containers
    cdef public long long _hits
    cdef public long long _clock
    cdef bint _is_like_last(self, tuple args, tuple kind)
    cdef object _look_up(self, tuple args, dict kwargs)
    cdef object _run(self, Known known, tuple leaves, tuple given, tuple args, dict kwargs)

cdef tuple _ordered(tuple given, Known known)
