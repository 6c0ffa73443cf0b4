from graphjit._locks cimport Turn
from graphjit.backends.executable cimport Executable
from graphjit.schedule.scalar_words cimport ScalarWords
from graphjit.backends.cpu.memory cimport HostMemory
from graphjit.backends.cpu.program cimport Program

cdef class CPUExecutable(Executable):
    cdef object _schedule
    cdef bint _has_scalars
    cdef ScalarWords _scalar_words
    cdef HostMemory _arena
    cdef list _kernels
    cdef public Program _program
    cdef object _slots
    cdef tuple _static
    cdef Turn _turn
    cdef object _last
    cdef public long long same
    cdef public long long rebound
    cdef public long long copied
    cdef object _replay(self, list pointers, tuple words)
