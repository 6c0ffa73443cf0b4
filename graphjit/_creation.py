"""Making arrays, inside and outside traced functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphjit import _array
from graphjit._adoption import adopt
from graphjit._array import Array, from_host
from graphjit._layout import Layout, contiguous, layout_of
from graphjit._refusals import concretization_error
from graphjit._trace import current, to_device
from graphjit._tracers import ArrayTracer, ScalarTracer, Tracer
from graphjit.backends.base import Device
from graphjit.kernel import numba_types

# Inside a traced function these return tracers, which a type checker may take for Arrays.
ArrayLike = Any
Shape = int | tuple[int, ...]


def empty(
    shape: Shape, dtype: Any = np.float64, *, order: str = "C", device: Device | None = None
) -> Any:
    """Make an array without setting its elements.

    Parameters
    ----------
    shape : int or tuple of int
        Elements along each axis.
    dtype : dtype-like
        Element type.
    order : {"C", "F"}
        Row-major or column-major.
    device : Device, optional
        Where; the default device if not given. A graph's own arrays are where the graph runs.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
        If Numba kernels have no such element type.
    DeviceMemoryError
        If the device has not enough memory.

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.empty((2, 3), "f4").nbytes
    24
    """
    return _new(contiguous(_shape(shape), dtype, order), device)


def full(
    shape: Shape,
    fill_value: Any,
    dtype: Any = None,
    *,
    order: str = "C",
    device: Device | None = None,
) -> Any:
    """Make an array of one value.

    Parameters
    ----------
    shape : int or tuple of int
        Elements along each axis.
    fill_value : scalar
        Every element.
    dtype : dtype-like, optional
        Element type; NumPy's choice for the value if not given.
    order : {"C", "F"}
        Row-major or column-major.
    device : Device, optional
        Where; the default device if not given.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
        If Numba kernels have no such element type.
    DeviceMemoryError
        If the device has not enough memory.

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.full(2, 7).copy_to_host()
    array([7, 7])
    """
    if dtype is None:
        dtype = (
            np.dtype(fill_value._type)
            if isinstance(fill_value, ScalarTracer)
            else np.asarray(fill_value).dtype
        )
    layout = contiguous(_shape(shape), dtype, order)
    result = _new(layout, device)
    result[...] = fill_value
    return result


def zeros(
    shape: Shape, dtype: Any = np.float64, *, order: str = "C", device: Device | None = None
) -> Any:
    """Make an array of zeros; parameters as `empty`.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.zeros(2).copy_to_host()
    array([0., 0.])
    """
    return full(shape, 0, np.dtype(dtype), order=order, device=device)


def ones(
    shape: Shape, dtype: Any = np.float64, *, order: str = "C", device: Device | None = None
) -> Any:
    """Make an array of ones; parameters as `empty`.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.ones(2, "i4").copy_to_host()
    array([1, 1], dtype=int32)
    """
    return full(shape, 1, np.dtype(dtype), order=order, device=device)


def arange(*bounds: Any, dtype: Any = None, device: Device | None = None) -> Any:
    """Make an array of evenly spaced values, as `numpy.arange` does.

    Parameters
    ----------
    *bounds : number
        ``stop``, or ``start, stop``, or ``start, stop, step``.
    dtype : dtype-like, optional
        Element type.
    device : Device, optional
        Where; the default device if not given.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.arange(1, 6, 2).copy_to_host()
    array([1, 3, 5])
    """
    for bound in bounds:
        if isinstance(bound, Tracer):
            raise concretization_error("the size of an array", bound, bound._remedy())
    return array(np.arange(*bounds, dtype=dtype), device=device)


def array(value: ArrayLike, dtype: Any = None, *, device: Device | None = None) -> Any:
    """Make an array with a copy of the elements of another, or of nested lists.

    Parameters
    ----------
    value : array-like
        Array, NumPy array, array of another library, number, or nested lists.
    dtype : dtype-like, optional
        Element type; that of `value` if not given.
    device : Device, optional
        Where; the default device if not given.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.array([1, 2]).dtype
    dtype('int64')
    """
    trace = current()
    if trace is not None and isinstance(value, Array):
        value = trace.lift(value)
    if isinstance(value, ArrayTracer):
        if dtype is not None and np.dtype(dtype) != value.dtype:
            raise TypeError(
                f"a traced {value.dtype} array can't become {np.dtype(dtype)}; use a kernel"
            )
        return value.copy()
    if trace is not None:
        return to_device(trace, np.asarray(value, dtype))
    adopted = None if isinstance(value, np.ndarray) else adopt(value)
    if adopted is not None and device in (None, adopted.device):
        return adopted.copy() if dtype is None else adopted.astype(dtype)
    host = adopted.copy_to_host() if adopted is not None else np.asarray(value)
    return from_host(host if dtype is None else host.astype(dtype, copy=False), device)


def asarray(value: ArrayLike, dtype: Any = None, *, device: Device | None = None) -> Any:
    """Make an array that shares memory with another where it can, and copies where it can't.

    Parameters
    ----------
    value : array-like
        Array, NumPy array (shared on the CPU), array of another library, or nested lists.
    dtype : dtype-like, optional
        Element type; that of `value` if not given.
    device : Device, optional
        Where; the default device if not given.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj, numpy as np
    >>> with gj.use_backend("cpu"):
    ...     host = np.zeros(2)
    ...     gj.asarray(host)[0] = 1
    >>> host
    array([1., 0.])
    """
    trace = current()
    if trace is not None and isinstance(value, Array):
        value = trace.lift(value)
    if isinstance(value, ArrayTracer):
        value._live()
        return value if dtype is None or np.dtype(dtype) == value.dtype else array(value, dtype)
    if trace is None:
        adopted = adopt(value, device)
        if (
            adopted is not None
            and device in (None, adopted.device)
            and (dtype is None or np.dtype(dtype) == adopted.dtype)
        ):
            return adopted
    return array(value, dtype, device=device)


def empty_like(other: ArrayLike, dtype: Any = None, shape: Shape | None = None) -> Any:
    """Make an array like another without setting its elements.

    Parameters
    ----------
    other : Array or array-like
        Gives shape, dtype, order and device.
    dtype : dtype-like, optional
        Another element type.
    shape : int or tuple of int, optional
        Another shape.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.empty_like(gj.zeros((2, 3)), "f4").dtype
    dtype('float32')
    """
    layout, device = _like(other, dtype, shape)
    return _new(layout, device)


def zeros_like(other: ArrayLike, dtype: Any = None, shape: Shape | None = None) -> Any:
    """Make an array of zeros like another; parameters as `empty_like`.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.zeros_like(gj.ones(2)).copy_to_host()
    array([0., 0.])
    """
    return full_like(other, 0, dtype, shape)


def ones_like(other: ArrayLike, dtype: Any = None, shape: Shape | None = None) -> Any:
    """Make an array of ones like another; parameters as `empty_like`.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.ones_like(gj.zeros(2)).copy_to_host()
    array([1., 1.])
    """
    return full_like(other, 1, dtype, shape)


def full_like(
    other: ArrayLike, fill_value: Any, dtype: Any = None, shape: Shape | None = None
) -> Any:
    """Make an array of one value like another; parameters as `empty_like` and `full`.

    Returns
    -------
    Array

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.full_like(gj.zeros(2), 5).copy_to_host()
    array([5., 5.])
    """
    layout, device = _like(other, dtype, shape)
    return full(
        layout.shape,
        fill_value,
        layout.dtype,
        order=layout.compact_order,
        device=device,
    )


def _like(other: Any, dtype: Any, shape: Shape | None) -> tuple[Layout, Device | None]:
    if isinstance(other, ArrayTracer):
        other._live()
    else:
        adopted = adopt(other)
        if adopted is None:
            other = np.asarray(other)
            return contiguous(
                other.shape if shape is None else _shape(shape),
                dtype or other.dtype,
                layout_of(other).compact_order,
            ), None
        other = adopted
    order = other._layout.compact_order if shape is None else "C"
    layout = contiguous(
        other.shape if shape is None else _shape(shape),
        other.dtype if dtype is None else dtype,
        order,
    )
    return layout, getattr(other, "device", None)


def _new(layout: Layout, device: Device | None) -> Any:
    trace = current()
    if trace is None:
        return _array.allocate(layout, device)
    numba_types.array_type(layout)  # refuses element types that kernels don't have
    return trace.empty(layout)


def _shape(shape: Any) -> tuple[int, ...]:
    lengths = (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)
    for length in lengths:
        if isinstance(length, Tracer):
            raise concretization_error("the shape of an array", length, length._remedy())
    result = tuple(int(length) for length in lengths)
    if any(length < 0 for length in result):
        raise ValueError(f"an array can't have the shape {result}")
    return result
