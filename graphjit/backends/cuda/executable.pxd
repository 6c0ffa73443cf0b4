from graphjit.backends.executable cimport Executable
from graphjit.schedule.scalar_words cimport ScalarWords
from graphjit._memory cimport Memory
from graphjit.backends.cuda.instances cimport Instances

cdef class CUDAExecutable(Executable):
    cdef object _schedule
    cdef Memory _arena
    cdef bint _has_scalars
    cdef ScalarWords _scalar_words
    cdef list _kept
    cdef object _program
    cdef object _watched
    cdef public Instances _instances
