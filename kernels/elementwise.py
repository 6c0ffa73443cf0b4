"""Elementwise kernels: one thread an element."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import cuda
from numba.np.numpy_support import as_dtype

import graphjit as gj
from graphjit._layout import contiguous

_BLOCK = 256


@functools.lru_cache(maxsize=256)
def map(function: Callable[..., Any], dtype: Any = None) -> Callable[..., gj.Array]:
    """Make a function of arrays out of a function of their elements.

    Parameters
    ----------
    function : callable
        Function of n Python scalars that Numba can compile, or a `@cuda.jit(device=True)` function.
        The same function gives the same kernels, so a lambda is best bound to a name once.
    dtype : dtype-like, optional
        Element type of the results. If it isn't given, it is the common type of the arrays where
        that is floating or complex, and else the type that Numba infers for `function`.

    Returns
    -------
    callable
        Takes n arguments, arrays of one shape and scalars, at least one of them an array, and
        returns a fresh array of that shape. It raises TypeError if `dtype` is needed or no argument
        is an array, and ValueError if the shapes differ.

    Examples
    --------
    >>> import graphjit as gj
    >>> from graphjit import kernels
    >>> axpy = kernels.map(lambda a, x, y: a * x + y)
    >>> axpy(2.0, gj.arange(3.0), gj.ones(3)).copy_to_host()
    array([1., 3., 5.])
    >>> positive = kernels.map(lambda x: x > 0, dtype=bool)
    >>> positive(gj.array([-1.0, 2.0])).copy_to_host()
    array([False,  True])
    """
    if not callable(function):
        raise TypeError(f"map() takes a function of elements, not a {type(function).__name__}")
    name = getattr(function, "py_func", function).__name__.strip("<>")
    scalar = function if hasattr(function, "py_func") else cuda.jit(device=True)(function)

    def mapped(*arguments: Any) -> gj.Array:
        arrays = [a for a in arguments if _is_array(a)]
        if not arrays:
            raise TypeError(f"map({name}) needs at least one array among its arguments")
        shapes = {a.shape for a in arrays}
        if len(shapes) > 1:
            raise ValueError(f"map({name}) needs arrays of one shape, got {sorted(shapes)}")
        out: gj.Array = gj.empty(
            arrays[0].shape,
            dtype=_result_type(function, arguments) if dtype is None else np.dtype(dtype),
        )
        _launch(name, scalar, arguments, out)
        return out

    mapped.__name__ = mapped.__qualname__ = f"map({name})"
    mapped.__doc__ = f"Apply {name} to every element."
    return mapped


def fill(array: gj.Array, value: Any) -> None:
    """Set every element of an array.

    Parameters
    ----------
    array : Array
        Any shape and strides; written in place.
    value : scalar
        Converted to the array's dtype as Numba converts it.

    Examples
    --------
    >>> import graphjit as gj
    >>> from graphjit import kernels
    >>> a = gj.zeros((2, 3))
    >>> kernels.fill(a[:, 1], 7)
    >>> a.copy_to_host()
    array([[0., 7., 0.],
           [0., 7., 0.]])
    """
    _launch("fill", _identity, (value,), array)


@cuda.jit(device=True)
def _identity(value: Any) -> Any:
    return value


def _is_array(value: Any) -> bool:
    return hasattr(value, "strides") and not isinstance(value, np.generic)


def _result_type(function: Callable[..., Any], arguments: tuple[Any, ...]) -> np.dtype[Any]:
    common = np.result_type(*(a.dtype for a in arguments if _is_array(a)))
    if common.kind in "fc":
        return common
    # Integers may well give floats (division, sqrt), which must not be truncated unasked.
    try:
        typed = numba.njit(getattr(function, "py_func", function))
        typed.compile(tuple(_numba_type(a) for a in arguments))
        return np.dtype(as_dtype(typed.nopython_signatures[-1].return_type))
    except Exception as error:
        # Numba raises many classes here, for what only kernels can call and for what nothing can.
        raise TypeError(
            f"the result type of {getattr(function, '__name__', function)} over {common} arrays "
            "can't be inferred; give map(..., dtype=...)"
        ) from error


def _numba_type(argument: Any) -> Any:
    if _is_array(argument):
        return numba.from_dtype(argument.dtype)
    return getattr(argument, "_numba_type_", None) or numba.typeof(argument)


def _launch(name: str, scalar: Any, arguments: tuple[Any, ...], out: Any) -> None:
    if out.size == 0:
        return
    operands = (*arguments, out)
    arrays = [a for a in operands if _is_array(a)]
    if all(a.strides == contiguous(a.shape, a.dtype).strides for a in arrays):
        operands = tuple(a.reshape(-1) if _is_array(a) else a for a in operands)
    ndim = operands[-1].ndim
    kernel = _kernel(name, scalar, tuple(_is_array(a) for a in arguments), ndim)
    kernel[-(-out.size // _BLOCK), _BLOCK](*operands)


@functools.lru_cache(maxsize=256)
def _kernel(name: str, scalar: Any, is_array: tuple[bool, ...], ndim: int) -> Any:
    """The kernel `out[i, j, ...] = scalar(a0[i, j, ...], a1, ...)`.

    Its text is generated because Numba has no kernels of a variable number of arguments.
    """
    parameters = list(inspect.signature(scalar.py_func).parameters)[: len(is_array)]
    if len(parameters) < len(is_array):
        raise TypeError(f"{name} takes {len(parameters)} arguments, {len(is_array)} given")
    index = ", ".join(f"_i{axis}" for axis in range(ndim))
    values = ", ".join(
        f"{parameter}[{index}]" if array else parameter
        for parameter, array in zip(parameters, is_array, strict=True)
    )
    lines = [
        f"def map_{name}({', '.join([*parameters, '_out'])}):",
        "    _i = _cuda.grid(1)",
        "    if _i < _out.size:",
    ]
    for axis in reversed(range(1, ndim)):
        lines += [
            f"        _i{axis} = _i % _out.shape[{axis}]",
            f"        _i //= _out.shape[{axis}]",
        ]
    lines += ["        _i0 = _i", f"        _out[{index}] = _scalar({values})"]
    scope: dict[str, Any] = {"_cuda": cuda, "_scalar": scalar}
    exec("\n".join(lines), scope)
    kernel = cuda.jit(scope[f"map_{name}"])
    # For strided arrays, which the kernel's IR tells too little about.
    read = tuple(p for p, array in zip(parameters, is_array, strict=True) if array)
    gj.declare_effects(kernel, reads=read, writes=("_out",))
    return kernel
