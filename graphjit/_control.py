"""Nodes as functions record them that aren't work: loops, branches, elements read as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphjit._device_control import HostCall, Switch, Update, While
from graphjit._location import Location
from graphjit._nodes import Access, Operand, ScalarRef, View, Work


@dataclass(frozen=True)
class Item:
    """An array's only element, read as a number.

    Parameters
    ----------
    target : ScalarRef
        The number.
    source : Access
        The element: a view of one.
    location : Location
        The user's line.
    """

    target: ScalarRef
    source: Access
    location: Location = field(compare=False)

    @property
    def reads(self) -> tuple[Access, ...]:
        """What the node reads."""
        return (self.source,)

    @property
    def writes(self) -> tuple[Access, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True)
class Carry:
    """One value that a loop hands on from iteration to iteration.

    Parameters
    ----------
    initial : View, ScalarRef or Constant
        What the first iteration is given.
    inner : View or ScalarRef
        What its body calls the value: a carried buffer or scalar.
    next : View, ScalarRef or Constant
        What the next iteration is given.
    result : View or ScalarRef
        What the graph calls the value after the last iteration: a carried buffer or scalar.
    """

    initial: Operand
    inner: View | ScalarRef
    next: Operand
    result: View | ScalarRef


@dataclass(frozen=True)
class Body:
    """Nodes that run as often as the node that holds them decides.

    They share the buffers and scalars of the graph.

    Parameters
    ----------
    nodes : tuple of Recorded
        The nodes.
    temporaries : frozenset of int
        Buffers that they make: others each time, for all that the graph says.
    outputs : tuple of View, ScalarRef or Constant
        What they hand to the node that holds them.
    """

    nodes: tuple[Recorded, ...]
    temporaries: frozenset[int]
    outputs: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A body that runs for every integer of a range, or as long as a condition holds.

    Parameters
    ----------
    index : ScalarRef
        What the body calls the integer.
    lower, upper : ScalarRef or Constant
        The range: from `lower` to `upper` - 1.
    condition : Body or None
        In place of a range: nodes that run before each iteration, and whose one output says whether
        there is another.
    carries : tuple of Carry
        What it hands on.
    body : Body
        The nodes of an iteration.
    reads, writes : tuple of Access
        What it reads and may write of the buffers that are there before it.
    location : Location
        The user's line.
    """

    index: ScalarRef
    lower: Operand
    upper: Operand
    condition: Body | None
    carries: tuple[Carry, ...]
    body: Body
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    location: Location = field(compare=False)


@dataclass(frozen=True)
class Branch:
    """One of several bodies, as a number decides.

    Parameters
    ----------
    index : ScalarRef
        Which body runs: an integer, taken to be the nearest one that there is, or a boolean.
    bodies : tuple of Body
        The bodies, which have as many outputs as there are results.
    results : tuple of View or ScalarRef
        What the graph calls their outputs: carried buffers and scalars.
    reads, writes : tuple of Access
        What they read and may write of the buffers that are there before.
    location : Location
        The user's line.
    """

    index: ScalarRef
    bodies: tuple[Body, ...]
    results: tuple[View | ScalarRef, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    location: Location = field(compare=False)


# What functions record, and what becomes of it.
Recorded = Work | Item | HostCall | Loop | Branch
Node = Recorded | Update | While | Switch
