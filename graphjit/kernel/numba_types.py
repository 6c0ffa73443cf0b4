"""Numba's types of what kernels are given."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.typing.typeof import typeof

from graphjit._errors import DTypeError
from graphjit._layout import Layout


@functools.lru_cache(maxsize=4096)
def array_type(layout: Layout, readonly: bool = False) -> Any:
    """Numba's type of an array.

    Parameters
    ----------
    layout : Layout
        Its shape, strides and dtype.
    readonly : bool
        Whether kernels may not store to it.

    Returns
    -------
    numba.cuda.types.Array

    Raises
    ------
    DTypeError
        If Numba has no such element type.
    """
    return types.Array(element_type(layout.dtype), layout.ndim, layout.order, readonly=readonly)


def is_no_element(dtype: np.dtype[Any]) -> bool:
    """Whether kernels have no use for such elements, even where Numba has a type for them."""
    return dtype.hasobject or dtype.subdtype is not None or dtype.kind in "SU"


def element_type(dtype: Any) -> Any:
    """Numba's type of an array's elements; raises DTypeError where Numba has none."""
    try:
        if is_no_element(dtype):
            raise TypeError("references, subarrays and strings are no elements here")
        return from_dtype(dtype)
    except Exception as error:
        raise DTypeError(
            f"Numba kernels have no element type {dtype}; convert the array first"
        ) from error


def value_type(value: Any) -> Any:
    """Numba's type of a number."""
    return typeof(value)


def class_type(class_: type) -> Any:
    """Numba's type of a traced number's class."""
    # What is too large for int64 has a class of its own.
    large = issubclass(class_, int) and class_ not in (int, bool)
    return types.uint64 if large else typeof(class_(1))
