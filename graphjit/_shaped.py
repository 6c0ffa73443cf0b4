"""What arrays and the tracers that stand for them have in common: a layout, and views by it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from graphjit._layout import Layout
from graphjit._operators import NoOperators


class Shaped(NoOperators):
    """Something with a Layout, of which other layouts are views."""

    __slots__ = ()

    @property
    def _layout(self) -> Layout:
        raise NotImplementedError

    def _derived(self, layout: Layout, offset: int) -> Self:
        """The view with another layout, `offset` bytes further on."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self._layout.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._layout.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._layout.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._layout.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._layout.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._layout.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    @property
    def T(self) -> Self:
        """The transposed view."""
        return self.transpose()

    def transpose(self, *axes: Any) -> Self:
        """The view with its axes permuted.

        Parameters
        ----------
        *axes : int, or one tuple of int
            The new order; reversed if none are given.

        Returns
        -------
        Array
            Of the same memory.

        Raises
        ------
        ValueError
            If these aren't the axes.
        """
        return self._derived(self._layout.transpose(_integers(axes) if axes else None), 0)

    def reshape(self, *shape: Any) -> Self:
        """The view of another shape.

        Parameters
        ----------
        *shape : int or tuple of int
            The new shape; one length may be -1.

        Returns
        -------
        Array
            Of the same memory.

        Raises
        ------
        ValueError
            If the sizes differ, or only a copy could have that shape.
        """
        return self._derived(self._layout.reshape(_integers(shape)), 0)

    def ravel(self, order: str = "C") -> Self:
        """The elements in one dimension: a view where there is one, else a copy.

        Parameters
        ----------
        order : {"C", "F", "A"}
            Last axis fastest, first axis fastest, or as the memory is.

        Returns
        -------
        Array

        Raises
        ------
        ValueError
            If there is no such order.
        """
        turned = self.transpose() if self._layout.ravels_columns(order) else self
        if turned._layout.order != "C":
            turned = turned.copy()
        return turned.reshape(-1)

    def copy(self) -> Self:
        """A copy in fresh row-major memory.

        Returns
        -------
        Array
        """
        raise NotImplementedError


def _integers(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Integers given one by one or as one sequence."""
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        given = tuple(given[0])
    return tuple(int(item) for item in given)
