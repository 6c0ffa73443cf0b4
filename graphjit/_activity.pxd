cdef class Activity:
    cdef object _lock
    cdef public long long traces
    cdef public long long streams
