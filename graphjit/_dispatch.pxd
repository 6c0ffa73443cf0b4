cimport cython
from graphjit._guards cimport changed
from graphjit._memory cimport Handle
from graphjit._replay cimport Replay

cdef class Known:
    cdef public Replay replay
    cdef public tuple guards
    cdef public object order
    cdef public object defaults
    cdef public long long used

cdef class Dispatcher:
    cdef object __weakref__
    cdef public dict _known
    cdef public object _statics
    cdef public set _foreign
    cdef public long long _hits
    cdef public long long _clock

cdef tuple _ordered(tuple given, Known known)
