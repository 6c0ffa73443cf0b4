"""A call of a compiled function: from its arguments' memory to its results.

Compiled where there is a C compiler (see `setup.py`): it runs at every call, with all that is the
same each time worked out before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphjit import _donation, _scalars
from graphjit._array import Array
from graphjit._inputs import Closures, Input, Leaves
from graphjit._memory import GONE, Allocator, Handle, Memory
from graphjit._nodes import Scalar
from graphjit._static_results import StaticResults
from graphjit.backends.executable import Executable

# Groups of external buffers that share memory, by buffer index.
Overlaps = tuple[tuple[int, ...], ...]

# What leaves of a result can be.
FRESH = 0  # a view of a buffer made for this call
ARGUMENT = 1  # an argument itself
ARGUMENT_VIEW = 2
CLOSURE_VIEW = 3
SCALAR = 4
FIXED = 5  # something that depends on no argument
COPIED = 6  # a copy of an array that the function made while it was traced


class Result:
    """What makes one leaf of the result.

    Parameters
    ----------
    kind : int
        FRESH, ARGUMENT, ...
    index : int
        Of the result buffer, the argument leaf, the closure or the scalar.
    offset : int
        For a view: bytes from the address of the buffer (FRESH) or of the array's first element.
    aval : ArrayAval or None
        For a view: what it is.
    value : object
        For FIXED and COPIED: the value.
    """

    __slots__ = ("aval", "index", "kind", "offset", "value")

    def __init__(
        self, kind: int, index: int = 0, offset: int = 0, aval: Any = None, value: Any = None
    ) -> None:
        self.kind = kind
        self.index = index
        self.offset = offset
        self.aval = aval
        self.value = value


class Replay:
    """How calls of one compiled function go.

    Parameters
    ----------
    inputs : tuple of Input
        The argument buffers, in the order of the executable's pointers.
    closures : tuple of (Handle, int, bool)
        Closed-over arrays, with what `Input` calls `low` and `written`; those that are uploaded
        anew at each call are given to it.
    allocators : tuple of Allocator
        What makes the result buffers.
    scalars : tuple of Scalar
        The graph's scalars.
    scalar_inputs : tuple of int
        Argument leaves that are scalars.
    results : tuple of Result
        What makes the leaves of the result.
    unflatten : callable or None
        From the leaves to the result; None if the one leaf is the result.
    overlaps : callable or None
        Which buffers share memory, from the pointers; None where it makes no difference.
    executable : callable
        The executable for arguments that overlap in a given way.
    donated : tuple of Input
        Arguments whose memory is given away.
    static : StaticResults or None
        The result buffers, where they are the same at every call.
    holds : bool
        Whether a replay lasts, so that the memory it uses must be held.
    name : str
        The function, for messages.
    """

    __slots__ = (
        "__weakref__",
        "_allocators",
        "_closures",
        "_donated",
        "_evaluates",
        "_executable",
        "_for_overlaps",
        "_holds",
        "_inputs",
        "_makes_one_array",
        "_name",
        "_only",
        "_overlaps",
        "_results",
        "_scalar_inputs",
        "_scalars",
        "_static",
        "_unflatten",
        "used",
    )

    def __init__(
        self,
        *,
        inputs: tuple[Input, ...],
        closures: Closures,
        allocators: tuple[Allocator, ...],
        scalars: tuple[Scalar, ...],
        scalar_inputs: tuple[int, ...],
        results: tuple[Result, ...],
        unflatten: Callable[[list[Any]], Any] | None,
        overlaps: Callable[[tuple[int, ...]], Overlaps] | None,
        executable: Callable[[Overlaps], Any],
        donated: tuple[Input, ...],
        static: StaticResults | None,
        holds: bool,
        name: str,
    ) -> None:
        self._inputs = inputs
        self._closures = closures
        self._allocators = allocators
        self._scalars = scalars
        self._scalar_inputs = scalar_inputs
        self._evaluates = len(scalars) > len(scalar_inputs)
        self._results = results
        self._only: Result | None = results[0] if unflatten is None else None
        self._unflatten = unflatten
        self._overlaps = overlaps
        self._for_overlaps = executable
        self._executable: Executable = executable(())
        self._donated = donated
        self._static = static
        self._makes_one_array = bool(
            self._only is not None and self._only.kind == FRESH and static is None and not donated
        )
        self._holds = holds
        self._name = name
        # When it was called last, by the clock of the graphed function.
        self.used = 0

    def run(
        self,
        leaves: Leaves,
        given: Leaves,
        stream: Any,
        closures: Closures | None = None,
    ) -> Any:
        """Replay once.

        Parameters
        ----------
        leaves : tuple
            Arrays and numbers, of the avals and classes it was made for.
        given : tuple
            The same, as the caller gave them.
        stream : int or None
            The stream to launch on.
        closures : tuple, optional
            Where closed-over arrays are uploaded at each call: all closures.

        Returns
        -------
        object
            What the function returns.
        """
        if closures is None:
            closures = self._closures
        if self._donated:
            _donation.refuse(self._name, self._donated, leaves, given, closures)
        static = self._static
        if static is not None:
            leaves, given = static.apart(leaves, given, self._inputs, stream)
        pointers: list[int] = []
        # Another thread may close or donate an array in the middle of a replay on the host.
        held: list[Memory] | None = [] if self._holds else None
        for item in self._inputs:
            entry: Input = item
            array: Handle = leaves[entry.leaf]
            memory: Memory = array._memory
            if memory.stream is not stream or (entry.written and memory.others is not None):
                if memory.stream is GONE:
                    entry.alive(leaves, self._name)
                memory.used_on(stream, entry.written)
            if held is not None:
                held.append(memory)
            pointers.append(array._start + entry.low if entry.low else array._start)
        for closure, low, written in closures:
            array = closure
            array._memory.used_on(stream, written)
            pointers.append(array._start + low)
        executable: Executable = self._executable
        if self._overlaps is not None:
            overlaps = self._overlaps(tuple(pointers))
            if overlaps:
                executable = self._for_overlaps(overlaps)
        scalars: Any = ()
        if self._scalar_inputs:
            scalars = [leaves[leaf] for leaf in self._scalar_inputs]
        if self._evaluates:
            scalars = _scalars.evaluate(self._scalars, scalars)
        only: Result | None = self._only
        if self._makes_one_array:
            # By far the most common.
            assert only is not None
            allocator: Allocator = self._allocators[0]
            memory = allocator.take(stream)
            pointers.append(memory.address)
            executable.run(pointers, scalars, stream)
            result: Handle = Array.__new__(Array)  # without going through its __init__
            result._memory = memory
            result._start = memory.address + only.offset if only.offset else memory.address
            result._aval = only.aval
            return result
        made = static.memory(stream) if static is not None else self._take(stream)
        for memory in made:
            pointers.append(memory.address)
        executable.run(pointers, scalars, stream)
        if self._donated:
            leaves, given = _donation.give_away(self._name, self._donated, leaves, given)
        if only is not None:
            return _leaf(only, leaves, given, closures, made, scalars)
        assert self._unflatten is not None
        return self._unflatten(
            [_leaf(leaf, leaves, given, closures, made, scalars) for leaf in self._results]
        )

    def _take(self, stream: Any) -> list[Memory]:
        """Fresh result buffers."""
        return [allocator.take(stream) for allocator in self._allocators]


def _leaf(
    result: Result,
    leaves: Leaves,
    given: Leaves,
    closures: Closures,
    made: Sequence[Memory],
    scalars: Sequence[Any],
) -> Any:
    """One leaf of a result."""
    kind = result.kind
    if kind == FRESH:
        memory: Memory = made[result.index]
        return Array(memory, memory.address + result.offset, result.aval)
    if kind == ARGUMENT:
        return given[result.index]
    if kind == ARGUMENT_VIEW or kind == CLOSURE_VIEW:
        array: Handle = leaves[result.index] if kind == ARGUMENT_VIEW else closures[result.index][0]
        return Array(array._memory, array._start + result.offset, result.aval)
    if kind == SCALAR:
        return scalars[result.index]
    return result.value.copy() if kind == COPIED else result.value
