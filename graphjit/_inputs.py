"""The argument buffers of a call.

Compiled where there is a C compiler (see `setup.py`).
"""

from __future__ import annotations

from typing import Any

from graphjit._errors import ClosedError
from graphjit._location import called_at
from graphjit._memory import GONE, Handle

# Named, since Cython takes the bare types for ones of C in signatures of compiled functions.
Leaves = tuple[Any, ...]
# Arrays, with what to add to their address to get the lowest, and whether they are written.
Closures = tuple[tuple[Handle, int, bool], ...]


class Input:
    """One argument buffer.

    Parameters
    ----------
    leaf : int
        Which argument leaf.
    low : int
        What to add to the address of its first element to get the lowest address.
    written : bool
        Whether a kernel may write it.
    name : str
        What the user calls it, for messages.
    """

    __slots__ = ("leaf", "low", "name", "written")

    def __init__(self, leaf: int, low: int, written: bool, name: str) -> None:
        self.leaf = leaf
        self.low = low
        self.written = written
        self.name = name

    def alive(self, leaves: Leaves, function: str) -> Handle:
        """The array; raises ClosedError if it was closed or donated."""
        array: Handle = leaves[self.leaf]
        if array._memory.stream is GONE:
            raise ClosedError(
                f"{function}(): argument {self.name}: {array._memory._lost}{called_at()}"
            )
        return array
