# cython: language_level=3
"""The driver calls of every replay, straight to the driver; see `calls.py`."""

import struct

from cuda.bindings import driver

from graphjit.backends.cuda.driver import check

PLACE = struct.Struct("=QQQ")

ctypedef int (*Current)(void **) noexcept nogil
ctypedef int (*Launch)(void *, void *) noexcept nogil
ctypedef int (*Repoint)(void *, void *, void *) noexcept nogil


cdef unsigned long long entry(bytes name):
    """Address of a driver function, as CUDA 12 has it: with cuda.bindings' structures."""
    found = driver.cuGetProcAddress(name, 12000, 0)
    return check(found, "asking the driver for a function")[0]

cdef Current _current = NULL
cdef Launch _launch = NULL
cdef Repoint _repoint = NULL


def load():
    """Find the functions; before the first call of them."""
    global _current, _launch, _repoint
    if _launch == NULL:
        _current = <Current><void *>entry(b"cuCtxGetCurrent")
        _repoint = <Repoint><void *>entry(b"cuGraphExecKernelNodeSetParams")
        _launch = <Launch><void *>entry(b"cuGraphLaunch")


cpdef object write_words(bytes places, list words):
    cdef Py_ssize_t count = len(places) // 24, index
    cdef const unsigned long long *place = <const unsigned long long *><const char *>places
    cdef unsigned long long word
    for index in range(count):
        word = words[<Py_ssize_t>place[1]]
        (<unsigned long long *>place[0])[0] = word + place[2]
        place += 3


cpdef unsigned long long current_context() noexcept:
    cdef void *found = NULL
    _current(&found)
    return <unsigned long long>found


cpdef int launch(unsigned long long executable, unsigned long long stream) noexcept:
    cdef int error
    with nogil:
        error = _launch(<void *>executable, <void *>stream)
    return error


cpdef int repoint(
    unsigned long long executable,
    unsigned long long node,
    object params,
    unsigned long long address,
) noexcept:
    return _repoint(<void *>executable, <void *>node, <void *>address)
