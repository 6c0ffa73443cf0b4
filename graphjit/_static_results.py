"""Result buffers that are the same at every call: what `outputs="static"` asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphjit._array import Array
from graphjit._errors import ArgumentError
from graphjit._inputs import Input, Leaves
from graphjit._location import called_at
from graphjit._memory import GONE, Allocator, Memory


class StaticResults:
    """Result buffers that are the same at every call.

    Parameters
    ----------
    allocators : tuple of Allocator
        What makes them.
    spans : tuple of int
        Bytes of the argument buffers.
    duplicate : callable
        Copies bytes at an address to fresh memory, on a stream.
    name : str
        The function, for messages.
    """

    def __init__(
        self,
        allocators: tuple[Allocator, ...],
        spans: tuple[int, ...],
        duplicate: Callable[[int, int, Any], Memory],
        name: str,
    ) -> None:
        self._allocators = allocators
        self._made = [allocator.take(None) for allocator in allocators]
        self._spans = spans
        self._duplicate = duplicate
        self._name = name

    def memory(self, stream: Any) -> list[Memory]:
        """The buffers, for a replay on a stream."""
        for memory in self._made:
            if memory.stream is not stream or memory.others is not None:
                memory.used_on(stream, True)
        return list(self._made)

    def apart(
        self,
        leaves: Leaves,
        given: Leaves,
        inputs: tuple[Input, ...],
        stream: Any,
    ) -> tuple[Leaves, Leaves]:
        """The arguments, with copies of those that lie in the results (as in `u = step(u)`).

        One that the function returns comes back as the copy: the results overwrite what was given.
        Closed-over arrays are older than the results, and lie in none.

        Raises
        ------
        ArgumentError
            If one of those is written: it can't be changed and overwritten both.
        """
        for place, memory in enumerate(self._made):
            if memory.stream is GONE:  # the caller closed or donated an earlier result
                self._made[place] = self._allocators[place].take(stream)
        copies: dict[int, Any] = {}
        for place, entry in enumerate(inputs):
            array = entry.alive(leaves, self._name)
            first, nbytes = array._start + entry.low, self._spans[place]
            if not self._meets(first, nbytes):
                continue
            if entry.written:
                raise ArgumentError(
                    f"{self._name}() writes its argument {entry.name}, which lies in its own "
                    f'static result; copy it first, or do without outputs="static"{called_at()}'
                )
            array._memory.used_on(stream, False)
            copy = self._duplicate(first, nbytes, stream)
            copies[entry.leaf] = Array(copy, copy.address - entry.low, array._aval)
        if not copies:
            return leaves, given
        return (
            tuple([copies.get(leaf, value) for leaf, value in enumerate(leaves)]),
            tuple([copies.get(leaf, value) for leaf, value in enumerate(given)]),
        )

    def _meets(self, first: int, nbytes: int) -> bool:
        return nbytes > 0 and any(
            first < memory.address + memory.nbytes and memory.address < first + nbytes
            for memory in self._made
        )
