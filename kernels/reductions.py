"""Reductions of whole arrays: deterministic, two passes of trees in shared memory.

Every block reduces one run of consecutive elements, and one more block reduces what they left. How
the elements are grouped depends on their number alone, so the same data gives the same bits on
every call.
"""

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np
from numba import cuda

import graphjit as gj

_BLOCK = 256
_ELEMENTS_PER_THREAD = 16
_MAX_BLOCKS = 1024


def reduce_sum(a: gj.Array) -> gj.Array:
    """Sum all elements.

    Parameters
    ----------
    a : Array
        Any shape and strides, of a boolean, integer or floating dtype.

    Returns
    -------
    Array
        Shape (). Floats keep their dtype; booleans and signed integers are summed as int64,
        unsigned ones as uint64. The sum of no elements is 0.

    Raises
    ------
    TypeError
        If the dtype is none of these.

    Examples
    --------
    >>> import graphjit as gj
    >>> from graphjit import kernels
    >>> kernels.reduce_sum(gj.arange(101)).item()
    5050
    """
    dtype = _sum_type(a.dtype)
    return _two_passes(_sum_kernel(dtype), _sum_kernel(dtype), (a.ravel(),), dtype)


def reduce_max(a: gj.Array) -> gj.Array:
    """Find the largest element.

    Parameters
    ----------
    a : Array
        Any shape and strides, of an integer or floating dtype.

    Returns
    -------
    Array
        Shape (), the dtype of `a`; NaN if any element is.

    Raises
    ------
    ValueError
        If `a` is empty.
    TypeError
        If the dtype is neither integer nor floating.

    Examples
    --------
    >>> import graphjit as gj
    >>> from graphjit import kernels
    >>> kernels.reduce_max(gj.array([3.0, 9.0, 4.0])).item()
    9.0
    """
    dtype = np.dtype(a.dtype)
    if dtype.kind not in "iuf":
        raise TypeError(f"reduce_max needs an integer or floating dtype, got {dtype}")
    if a.size == 0:
        raise ValueError(
            f"reduce_max of an empty array (shape {a.shape}): it has no largest element"
        )
    return _two_passes(_max_kernel(dtype), _max_kernel(dtype), (a.ravel(),), dtype)


def dot(x: gj.Array, y: gj.Array) -> gj.Array:
    """Sum the products of the elements of two vectors.

    Parameters
    ----------
    x, y : Array
        Shape (n,), any strides, of boolean, integer or floating dtypes.

    Returns
    -------
    Array
        Shape (), of the dtype that `reduce_sum` gives for the common type of `x` and `y`. The
        product of no elements is 0.

    Raises
    ------
    ValueError
        If they aren't one-dimensional or their lengths differ.
    TypeError
        If a dtype is none of these.

    Examples
    --------
    >>> import graphjit as gj
    >>> from graphjit import kernels
    >>> kernels.dot(gj.arange(4.0), gj.ones(4)).item()
    6.0
    """
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"dot needs two vectors of one length, got shapes {x.shape} and {y.shape}")
    dtype = _sum_type(np.result_type(x.dtype, y.dtype))
    return _two_passes(_dot_kernel(dtype), _sum_kernel(dtype), (x, y), dtype)


def _sum_type(dtype: Any) -> np.dtype[Any]:
    dtype = np.dtype(dtype)
    if dtype.kind not in "biuf":
        raise TypeError(f"a boolean, integer or floating dtype is needed, got {dtype}")
    summed: np.dtype[Any] = np.dtype({"b": "i8", "i": "i8", "u": "u8"}.get(dtype.kind, dtype))
    return summed


def _two_passes(first: Any, second: Any, arrays: tuple[Any, ...], dtype: np.dtype[Any]) -> gj.Array:
    size = arrays[0].size
    out: gj.Array = gj.zeros(1, dtype=dtype) if size == 0 else gj.empty(1, dtype=dtype)
    # A run is a whole number of rounds of the block, at least _ELEMENTS_PER_THREAD of them.
    run = max(_ELEMENTS_PER_THREAD, -(-size // (_MAX_BLOCKS * _BLOCK))) * _BLOCK
    blocks = -(-size // run)
    if blocks == 1:
        first[1, _BLOCK](*arrays, out, run)
    elif blocks > 1:
        partials = gj.empty(blocks, dtype=dtype)
        first[blocks, _BLOCK](*arrays, partials, run)
        second[1, _BLOCK](partials, out, blocks)
    return out.reshape(())


def _tree(combine: Any, dtype: np.dtype[Any]) -> Any:
    """A device function that combines one value of each thread of a block, for all of them."""
    number = numba.from_dtype(dtype)

    @cuda.jit(device=True)
    def tree(value: Any) -> Any:
        shared = cuda.shared.array(_BLOCK, number)
        thread = cuda.threadIdx.x
        shared[thread] = value
        cuda.syncthreads()
        half = _BLOCK // 2
        while half > 0:
            if thread < half:
                shared[thread] = combine(shared[thread], shared[thread + half])
            cuda.syncthreads()
            half //= 2
        return shared[0]

    return tree


@cuda.jit(device=True)
def _add(a: Any, b: Any) -> Any:
    return a + b


@cuda.jit(device=True)
def _larger(a: Any, b: Any) -> Any:
    # `a != a` lets a NaN win.
    return a if a > b or a != a else b


@functools.cache
def _sum_kernel(dtype: np.dtype[Any]) -> Any:
    return _reduce_kernel(_add, 0, dtype)


@functools.cache
def _max_kernel(dtype: np.dtype[Any]) -> Any:
    lowest = -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)
    return _reduce_kernel(_larger, lowest, dtype)


def _reduce_kernel(combine: Any, identity: Any, dtype: np.dtype[Any]) -> Any:
    tree = _tree(combine, dtype)
    number = numba.from_dtype(dtype)

    @cuda.jit
    def reduce(x: Any, partials: Any, run: int) -> None:
        start = cuda.blockIdx.x * run
        value = number(identity)
        for i in range(start + cuda.threadIdx.x, min(start + run, x.size), _BLOCK):
            value = combine(value, number(x[i]))
        value = tree(value)
        if cuda.threadIdx.x == 0:
            partials[cuda.blockIdx.x] = value

    # For strided arrays, which the kernel's IR tells too little about.
    gj.declare_effects(reduce, reads=("x",), writes=("partials",))
    return reduce


@functools.cache
def _dot_kernel(dtype: np.dtype[Any]) -> Any:
    tree = _tree(_add, dtype)
    number = numba.from_dtype(dtype)

    @cuda.jit
    def dot(x: Any, y: Any, partials: Any, run: int) -> None:
        start = cuda.blockIdx.x * run
        value = number(0)
        for i in range(start + cuda.threadIdx.x, min(start + run, x.size), _BLOCK):
            value += number(x[i]) * number(y[i])
        value = tree(value)
        if cuda.threadIdx.x == 0:
            partials[cuda.blockIdx.x] = value

    gj.declare_effects(dot, reads=("x", "y"), writes=("partials",))
    return dot
