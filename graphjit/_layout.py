"""Shapes, strides and views, with NumPy's own indexing rules.

Views are worked out by NumPy on an array that has the right shape and strides and whose memory is
never touched, so that slicing, reshaping and transposing mean here exactly what they mean there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphjit._cached_property import cached_property

# Bounds the exact overlap test; beyond it two views are taken to overlap.
_OVERLAP_WORK = 10_000


@dataclass(frozen=True)
class Layout:
    """What an array is, without its memory.

    Parameters
    ----------
    shape : tuple of int
        Elements along each axis.
    strides : tuple of int
        Bytes from one element to the next along each axis.
    dtype : numpy.dtype
        Element type.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Layouts are part of every call's key; hashing a dtype costs most of a microsecond.
        return hash((self.shape, self.strides, self.dtype))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements themselves."""
        return self.size * self.dtype.itemsize

    @cached_property
    def extent(self) -> tuple[int, int]:
        """Lowest and one past the highest byte, relative to the first element."""
        if self.size == 0:
            return 0, 0
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = sum(step for step in steps if step < 0)
        return low, sum(step for step in steps if step > 0) + self.dtype.itemsize

    @cached_property
    def order(self) -> str:
        """``"C"``, ``"F"`` or ``"A"``, by Numba's rules."""
        flags = self._model.flags
        return "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"

    @property
    def compact_order(self) -> str:
        """``"C"`` or ``"F"``: the order of a contiguous array made like this one."""
        return "F" if self.order == "F" else "C"

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements fill their extent, row-major or column-major."""
        return self.order != "A"

    @cached_property
    def _model(self) -> np.ndarray[Any, Any]:
        """An array of this layout over memory that isn't there; never read or written."""
        return as_strided(np.empty(1, self.dtype), self.shape, self.strides)

    def index(self, key: Any) -> tuple[Layout, int]:
        """The view `array[key]` of basic indexing.

        Parameters
        ----------
        key : int, slice, None, Ellipsis, field name, or tuple of these
            NumPy basic index.

        Returns
        -------
        Layout, int
            The view and its offset in bytes; a full integer index gives a 0-d view.

        Raises
        ------
        TypeError
            If the index needs the array's contents (arrays, lists, masks).
        IndexError
            As NumPy.
        """
        items = key if isinstance(key, tuple) else (key,)
        if all(isinstance(item, str) for item in items) and len(items) == 1:
            return self._derived(self._model[key])
        for item in items:
            # A bool is an int to Python, and a mask to NumPy.
            if isinstance(item, bool) or not (
                item is None or item is Ellipsis or isinstance(item, (slice, int, np.integer))
            ):
                raise TypeError(
                    f"an array can be indexed by integers, slices, None and ..., not by "
                    f"{type(item).__name__}"
                )
        # The trailing Ellipsis makes NumPy return a 0-d view where it would read an element.
        if not any(item is Ellipsis for item in items):
            items = (*items, Ellipsis)
        return self._derived(self._model[items])

    def reshape(self, shape: tuple[int, ...]) -> Layout:
        """The view of another shape, sharing memory.

        Raises
        ------
        ValueError
            If the sizes differ or no view has that shape.
        """
        if -1 not in shape and math.prod(shape) != self.size:
            raise ValueError(f"cannot reshape {self}, of {self.size} elements, to {shape}")
        try:
            return self._derived(self._model.reshape(shape, copy=False))[0]
        except ValueError as error:
            raise ValueError(f"cannot reshape {self} to {shape} without a copy: {error}") from None

    def ravels_columns(self, order: str) -> bool:
        """Whether `ravel` in that order goes along the first axis first."""
        if order not in ("C", "F", "A"):
            raise ValueError(f"order must be 'C', 'F' or 'A', not {order!r}")
        return order == "F" or (order == "A" and self.order == "F")

    def transpose(self, axes: tuple[int, ...] | None = None) -> Layout:
        """The view with its axes permuted (reversed if `axes` is None)."""
        return self._derived(self._model.transpose(axes))[0]

    def _derived(self, view: np.ndarray[Any, Any]) -> tuple[Layout, int]:
        return layout_of(view), view.ctypes.data - self._model.ctypes.data

    def __str__(self) -> str:
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return text if self.order == "C" else f"{text}:{self.order}"


def contiguous(shape: tuple[int, ...], dtype: Any, order: str = "C") -> Layout:
    """The layout of a fresh array.

    Parameters
    ----------
    shape : tuple of int
        Elements along each axis.
    dtype : dtype-like
        Element type.
    order : {"C", "F"}
        Row-major or column-major.

    Returns
    -------
    Layout
    """
    dtype = np.dtype(dtype)
    strides = []
    step = dtype.itemsize
    for length in reversed(shape) if order == "C" else shape:
        strides.append(step)
        step *= max(length, 1)
    return Layout(shape, tuple(reversed(strides) if order == "C" else strides), dtype)


def layout_of(array: np.ndarray[Any, Any]) -> Layout:
    """The layout of a NumPy array."""
    return Layout(array.shape, array.strides, array.dtype)


def overlap(a: Layout, a_offset: int, b: Layout, b_offset: int) -> bool:
    """Whether two views of one buffer share a byte.

    Parameters
    ----------
    a, b : Layout
        The views.
    a_offset, b_offset : int
        Byte offsets of their first elements in the buffer.

    Returns
    -------
    bool
        Exact, except that a test that would take too long says True.
    """
    if a.size == 0 or b.size == 0:
        return False
    (a_low, a_high), (b_low, b_high) = a.extent, b.extent
    if a_offset + a_high <= b_offset + b_low or b_offset + b_high <= a_offset + a_low:
        return False
    if a.is_contiguous and b.is_contiguous:
        return True
    # NumPy's own solver, on arrays placed at these offsets of memory that isn't there.
    base = np.empty(1, np.uint8)
    first = _placed(base, a, a_offset)
    second = _placed(base, b, b_offset)
    work: Any = _OVERLAP_WORK  # NumPy's annotation knows only its two special values
    try:
        return bool(np.shares_memory(first, second, max_work=work))
    except np.exceptions.TooHardError:
        return True


class _Placed:
    """Describes an array at an address to NumPy."""

    def __init__(self, address: int, layout: Layout) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": layout.shape,
            "strides": layout.strides,
            "typestr": f"|V{layout.dtype.itemsize}",
        }


def _placed(base: np.ndarray[Any, Any], layout: Layout, offset: int) -> np.ndarray[Any, Any]:
    return np.asarray(_Placed(base.ctypes.data + offset, layout))
