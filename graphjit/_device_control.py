"""Nodes of a graph that is ready to be scheduled, by which the device decides what runs.

What it decides by is its *state*: numbers, and pointers, which are buffers that are one of several
others. Each has an 8-byte slot that only `Update` nodes change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from graphjit._location import Location
from graphjit._nodes import Access, Buffer, Launch, Number, Operand, StateRef, View, Work


@dataclass(frozen=True)
class Compute:
    """``target = function(*operands)``, as a value of the target's class."""

    target: StateRef
    function: Callable[..., Any]
    operands: tuple[Number, ...]
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Load:
    """``target = the element``, which is where it was before the update began."""

    target: StateRef
    source: Access


@dataclass(frozen=True)
class Point:
    """Let a pointer point to the first byte of a view, which may move with indices."""

    target: int
    view: View


@dataclass(frozen=True)
class Move:
    """Pointers and numbers get new values, all at once.

    Parameters
    ----------
    pointers : tuple of (int, View)
        Pointer, and the view to whose first byte it shall point.
    numbers : tuple of (StateRef, Number)
        Number, and its new value.
    """

    pointers: tuple[tuple[int, View], ...]
    numbers: tuple[tuple[StateRef, Number], ...]


@dataclass(frozen=True)
class Choose:
    """Let a pointer point to the first part of a buffer that no other pointer points into.

    Parameters
    ----------
    target : int
        The pointer.
    pool : int
        The buffer.
    stride, count : int
        Bytes of a part, and how many parts there are.
    held : tuple of int
        The other pointers, fewer than there are parts.
    """

    target: int
    pool: int
    stride: int
    count: int
    held: tuple[int, ...]


Assignment = Compute | Load | Point | Move | Choose


@dataclass(frozen=True)
class Update:
    """Changes of the state, made one after the other by one thread.

    Parameters
    ----------
    assignments : tuple of Assignment
        The changes.
    decides : StateRef or None
        The number that the node after this one decides by or, at the end of a loop's body, the
        loop.
    then : tuple of Assignment
        Changes that are made only if that number is true.
    location : Location
        The user's line.
    """

    assignments: tuple[Assignment, ...]
    decides: StateRef | None
    then: tuple[Assignment, ...]
    location: Location = field(compare=False)

    @property
    def loads(self) -> tuple[Load, ...]:
        """What it reads of arrays."""
        return tuple(each for each in self.all if isinstance(each, Load))

    @property
    def all(self) -> tuple[Assignment, ...]:
        """All changes."""
        return (*self.assignments, *self.then)

    @property
    def reads(self) -> tuple[Access, ...]:
        """What the node reads."""
        return tuple(load.source for load in self.loads)

    @property
    def writes(self) -> tuple[Access, ...]:
        """Nothing but state."""
        return ()


@dataclass(frozen=True)
class HostCall:
    """A call of a Python function on the host.

    Parameters
    ----------
    function : callable
        The function.
    values : tuple of View or number
        What it is called with.
    every : int
        It is called in each so manyth iteration of the loop around it only.
    reads : tuple of Access
        What the node reads.
    location : Location
        The user's line.
    """

    function: Callable[..., Any]
    values: tuple[Operand, ...]
    every: int
    reads: tuple[Access, ...]
    location: Location = field(compare=False)

    @property
    def writes(self) -> tuple[Access, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True)
class While:
    """Nodes that run as long as a number of the state is true.

    Parameters
    ----------
    test : StateRef
        The number.
    nodes : tuple
        The nodes; the last is an Update that decides it.
    carried : tuple of int
        Pointers that it hands from iteration to iteration.
    temporaries : frozenset of int
        Buffers that each iteration makes anew.
    reads, writes : tuple of Access
        What the nodes read and may write.
    location : Location
        The user's line.
    """

    test: StateRef
    nodes: tuple[Scheduled, ...]
    carried: tuple[int, ...]
    temporaries: frozenset[int]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    location: Location = field(compare=False)

    @property
    def bodies(self) -> tuple[tuple[Scheduled, ...], ...]:
        """Its nodes."""
        return (self.nodes,)


@dataclass(frozen=True)
class Switch:
    """One of several lists of nodes, as a number of the state decides.

    Parameters
    ----------
    index : StateRef
        The number: an integer within bounds.
    bodies : tuple of tuple
        The nodes for each of its values.
    temporaries : frozenset of int
        Buffers that they make anew each time.
    reads, writes : tuple of Access
        What the nodes read and may write.
    location : Location
        The user's line.
    """

    index: StateRef
    bodies: tuple[tuple[Scheduled, ...], ...]
    temporaries: frozenset[int]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    location: Location = field(compare=False)


Control = Update | While | Switch | HostCall
Scheduled = Work | Control


def every(nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes, and those that they hold."""
    for node in nodes:
        yield node
        if isinstance(node, (While, Switch)):
            for body in node.bodies:
                yield from every(body)


def used(node: Any) -> Iterator[View]:
    """The views that a node names, those of nodes that it holds apart."""
    if isinstance(node, Launch):
        yield from (operand for operand in node.operands if isinstance(operand, View))
    if isinstance(node, Update):
        for each in node.all:
            if isinstance(each, Move):
                yield from (view for _, view in each.pointers)
            elif isinstance(each, Point):
                yield each.view
    if not isinstance(node, (While, Switch)):
        yield from (access.view for access in (*node.reads, *node.writes))


def targets(nodes: Iterable[Any], buffers: Iterable[Buffer]) -> dict[int, frozenset[int]]:
    """For each buffer those that it may be: itself, or what a pointer may point into."""
    found = {b.index: {b.index} if b.storage != "pointer" else set() for b in buffers}
    flows = set()
    for node in every(nodes):
        for each in node.all if isinstance(node, Update) else ():
            if isinstance(each, Move):
                flows |= {(target, view.buffer) for target, view in each.pointers}
            elif isinstance(each, Point):
                flows.add((each.target, each.view.buffer))
            elif isinstance(each, Choose):
                flows.add((each.target, each.pool))
    changed = True
    while changed:
        changed = False
        for target, source in flows:
            if not found[source] <= found[target]:
                found[target] |= found[source]
                changed = True
    return {buffer: frozenset(each) for buffer, each in found.items()}
