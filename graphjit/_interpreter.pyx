# cython: language_level=3
"""What the interpreter knows, straight from it; see `_interpreter.py`."""

from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident

cdef extern from "Python.h":
    PyObject *PyFunction_GetCode(object function)
    PyObject *PyFunction_GetDefaults(object function)
    PyObject *PyFunction_GetKwDefaults(object function)
    void PyErr_Clear()
    Py_ssize_t Py_REFCNT(object value)


cpdef unsigned long long thread_ident() noexcept:
    return PyThread_get_thread_ident()


cpdef Py_ssize_t reference_count(object value) noexcept:
    return Py_REFCNT(value)


cpdef object function_attribute(object function, str name):
    cdef PyObject *found
    if name == "__code__":
        found = PyFunction_GetCode(function)
    elif name == "__defaults__":
        found = PyFunction_GetDefaults(function)
    else:
        found = PyFunction_GetKwDefaults(function)
    if found == NULL:
        PyErr_Clear()  # of what is not a function
        return None
    return <object>found
