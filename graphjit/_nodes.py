"""What graphs consist of: buffers, views, host scalars, and nodes that read and write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from graphjit._layout import Layout
from graphjit._location import Location
from graphjit.kernel.ir import KernelIR

Storage = Literal["input", "closure", "temporary", "carried", "pointer"]


@dataclass(frozen=True)
class Buffer:
    """One piece of memory, never overlapping another buffer of the same graph.

    Inputs may still share memory with each other or with closures when the graph is called: that
    is a fact of the call, and selects the Schedule.

    Parameters
    ----------
    index : int
        Its place in `Graph.buffers`.
    storage : {"input", "closure", "temporary", "carried", "pointer"}
        Given by the caller, closed over by the function or a kernel, made by the graph, a name
        for what a loop carries, which is another buffer at each iteration, or one of several
        buffers: which one the device decides.
    nbytes : int
        Size.
    name : str
        For listings.
    """

    index: int
    storage: Storage
    nbytes: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Moving:
    """How far a view moves with a loop's index.

    Parameters
    ----------
    index : ScalarRef or StateRef
        An integer: a loop's index, or what the run decides.
    length : int
        Elements along the axis: an index from -length to length - 1 is within bounds.
    stride : int
        Bytes from one element to the next.
    location : Location
        The user's line.
    """

    index: ScalarRef | StateRef
    length: int
    stride: int
    location: Location = field(compare=False)


@dataclass(frozen=True)
class View:
    """A region of a buffer.

    Parameters
    ----------
    buffer : int
        Index of the base buffer.
    offset : int
        Byte offset of the first element.
    layout : Layout
        Shape, strides and dtype.
    moving : tuple of Moving
        What is added to the offset when the graph runs.
    """

    buffer: int
    offset: int
    layout: Layout
    moving: tuple[Moving, ...] = ()

    def part(self, layout: Layout, offset: int, moving: tuple[Moving, ...] = ()) -> View:
        """The view of another layout, `offset` bytes further on."""
        return View(self.buffer, self.offset + offset, layout, self.moving + moving)


@dataclass(frozen=True)
class Access:
    """A view and the version of its buffer that is read, or that a write makes.

    A write makes version `version` from `version - 1`: what it leaves alone survives.
    """

    view: View
    version: int


@dataclass(frozen=True)
class ScalarRef:
    """A host scalar: the value of `Graph.scalars[index]`."""

    index: int


@dataclass(frozen=True)
class StateRef:
    """A device scalar: a value of the class `Graph.state[index]` that only the device knows."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A value fixed when the function was traced.

    Parameters
    ----------
    value : object
        The Python or NumPy scalar.
    key : tuple
        Type and exact bits, by which constants compare (so that 0.0 and -0.0 differ).
    """

    value: Any = field(compare=False)
    key: tuple[Any, ...]


@dataclass(frozen=True)
class Scalar:
    """A host scalar: an input, or an operation on others evaluated on the host at every call.

    Parameters
    ----------
    op : str
        ``"input"``, ``"carried"`` for what a loop or branch decides, ``"item"`` for an element of
        an array, or the operation's name.
    function : callable or None
        What computes it; None for all but operations.
    operands : tuple of ScalarRef or Constant
        What it is applied to.
    type : type
        Class of the value: int, float, bool, complex or a NumPy scalar class.
    name : str
        Name of the argument, for an input; of what is carried.
    location : Location or None
        The user's line, for an operation.
    """

    op: str
    function: Callable[..., Any] | None
    operands: tuple[ScalarRef | Constant, ...]
    type: type
    name: str = ""
    location: Location | None = field(default=None, compare=False)


Number = ScalarRef | StateRef | Constant
Operand = View | Number


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Parameters
    ----------
    kernel : KernelIR
        The kernel for these argument types.
    operands : tuple of View, ScalarRef, StateRef or Constant
        One for each of the kernel's leaves.
    grid, block : tuple of int
        Launch configuration, three numbers each.
    shared_bytes : int
        Dynamic shared memory.
    reads, writes : tuple of Access
        What the launch reads and may write.
    location : Location
        The user's line.
    """

    kernel: KernelIR
    operands: tuple[Operand, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    location: Location = field(compare=False)


@dataclass(frozen=True)
class Copy:
    """`target[...] = source`, same shape and dtype.

    Parameters
    ----------
    source, target : Access
        What is read and the version that is made.
    location : Location
        The user's line.
    """

    source: Access
    target: Access
    location: Location = field(compare=False)

    @property
    def reads(self) -> tuple[Access, ...]:
        """What the node reads."""
        return (self.source,)

    @property
    def writes(self) -> tuple[Access, ...]:
        """What the node writes."""
        return (self.target,)


@dataclass(frozen=True)
class Fill:
    """`target[...] = value`.

    Parameters
    ----------
    value : ScalarRef, StateRef or Constant
        Converted to the target's dtype as NumPy converts it.
    target : Access
        The version that is made.
    location : Location
        The user's line.
    """

    value: Number
    target: Access
    location: Location = field(compare=False)

    @property
    def reads(self) -> tuple[Access, ...]:
        """What the node reads."""
        return ()

    @property
    def writes(self) -> tuple[Access, ...]:
        """What the node writes."""
        return (self.target,)


# A node that is one piece of work.
Work = Launch | Copy | Fill


def constant(value: Any) -> Constant:
    """A constant that compares by type and exact value."""
    return Constant(value, (type(value), repr(value)))
