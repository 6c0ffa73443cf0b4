"""The Graph: what a traced program does, in SSA form over versions of its buffers.

A graph names base buffers, views of them and host scalars, and lists nodes. Every node that may
write a buffer makes that buffer's next version, and every read names the version it reads. It
knows no backend and no address, and is immutable, hashable and printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from graphjit._layout import Layout
from graphjit._location import Location
from graphjit.kernel.ir import KernelIR

Storage = Literal["input", "closure", "temporary"]


@dataclass(frozen=True)
class Buffer:
    """One piece of memory, never overlapping another buffer of the same graph.

    Inputs may still share memory with each other or with closures when the graph is called: that
    is a fact of the call, and selects the Schedule.

    Parameters
    ----------
    index : int
        Its place in `Graph.buffers`.
    storage : {"input", "closure", "temporary"}
        Given by the caller, closed over by the function or a kernel, or made by the graph.
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
    """

    buffer: int
    offset: int
    layout: Layout


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
        ``"input"``, or the operation's name.
    function : callable or None
        What computes it; None for an input.
    operands : tuple of ScalarRef or Constant
        What it is applied to.
    type : type
        Class of the value: int, float, bool, complex or a NumPy scalar class.
    name : str
        Name of the argument, for an input.
    location : Location or None
        The user's line, for an operation.
    """

    op: str
    function: Callable[..., Any] | None
    operands: tuple[ScalarRef | Constant, ...]
    type: type
    name: str = ""
    location: Location | None = field(default=None, compare=False)


Operand = View | ScalarRef | Constant


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Parameters
    ----------
    kernel : KernelIR
        The kernel for these argument types.
    operands : tuple of View, ScalarRef or Constant
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
    value : ScalarRef or Constant
        Converted to the target's dtype as NumPy converts it.
    target : Access
        The version that is made.
    location : Location
        The user's line.
    """

    value: ScalarRef | Constant
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


Node = Launch | Copy | Fill


@dataclass(frozen=True, repr=False)
class Graph:
    """A traced program.

    Parameters
    ----------
    name : str
        Name of the traced function.
    buffers : tuple of Buffer
        All memory it names.
    scalars : tuple of Scalar
        All host scalars, each after its operands.
    inputs : tuple of View or ScalarRef
        One for each dynamic leaf of the arguments, in order.
    nodes : tuple of Launch, Copy or Fill
        In the order eager code would run them.
    outputs : tuple of Access or ScalarRef
        One for each dynamic leaf of the result, in order.

    Examples
    --------
    >>> import graphjit as gj
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> def f(x):
    ...     double[1, 32](x)
    ...     return x
    >>> graph = gj.make_graph(f)(gj.ones(3))
    >>> len(graph.nodes)
    1
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    inputs: tuple[View | ScalarRef, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Access | ScalarRef, ...]

    @property
    def mutated(self) -> frozenset[int]:
        """Indices of the input and closure buffers that a node may write."""
        return frozenset(
            access.view.buffer
            for node in self.nodes
            for access in node.writes
            if self.buffers[access.view.buffer].storage != "temporary"
        )

    @property
    def results(self) -> tuple[int, ...]:
        """Indices of the temporaries that leave the graph, in order of first use."""
        found: dict[int, None] = {}
        for output in self.outputs:
            if isinstance(output, Access):
                if self.buffers[output.view.buffer].storage == "temporary":
                    found[output.view.buffer] = None
        return tuple(found)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        inputs = ", ".join(
            f"{self.buffers[i.buffer].name}: {i.layout}"
            if isinstance(i, View)
            else f"{self._scalar(i)}: {self.scalars[i.index].type.__name__}"
            for i in self.inputs
        )
        yield f"graph {self.name}({inputs})"
        for buffer in self.buffers:
            if buffer.storage != "input":
                yield f"    {buffer.name} = {buffer.storage}, {buffer.nbytes} bytes"
        for index, scalar in enumerate(self.scalars):
            if scalar.op != "input":
                operands = ", ".join(self._operand(o) for o in scalar.operands)
                yield f"    %{index}: {scalar.type.__name__} = {scalar.op}({operands})"
        for node in self.nodes:
            yield f"    {self.describe(node)}"
        yield f"    return {', '.join(self._output(o) for o in self.outputs)}"

    def describe(self, node: Node) -> str:
        """One node as a line of text, with the versions it reads and makes and its source line."""
        if isinstance(node, Launch):
            reads = {a.view: a.version for a in node.reads}
            writes = {a.view: a.version for a in node.writes}
            operands = ", ".join(self._operand(o, reads, writes) for o in node.operands)
            shared = f", {node.shared_bytes} bytes" if node.shared_bytes else ""
            text = (
                f"{node.kernel.name}[{_dims(node.grid)}, {_dims(node.block)}{shared}]({operands})"
            )
        elif isinstance(node, Copy):
            text = f"copy({self._access(node.source)} -> {self._access(node.target)})"
        else:
            text = f"fill({self._operand(node.value)} -> {self._access(node.target)})"
        return f"{text}  # {node.location.short}"

    def _operand(
        self,
        operand: Operand,
        reads: dict[View, int] | None = None,
        writes: dict[View, int] | None = None,
    ) -> str:
        if isinstance(operand, ScalarRef):
            return self._scalar(operand)
        if isinstance(operand, Constant):
            return repr(operand.value)
        read, write = (reads or {}).get(operand), (writes or {}).get(operand)
        versions = [f"@{v}" for v in (read,) if v is not None]
        versions += [f"->@{v}" for v in (write,) if v is not None]
        return self._view(operand) + "".join(versions)

    def _access(self, access: Access) -> str:
        return f"{self._view(access.view)}@{access.version}"

    def _output(self, output: Access | ScalarRef) -> str:
        return self._access(output) if isinstance(output, Access) else self._scalar(output)

    def _scalar(self, ref: ScalarRef) -> str:
        return self.scalars[ref.index].name or f"%{ref.index}"

    def _view(self, view: View) -> str:
        buffer = self.buffers[view.buffer]
        whole = view.offset + view.layout.extent[0] == 0 and view.layout.nbytes == buffer.nbytes
        return buffer.name if whole else f"{buffer.name}+{view.offset}:{view.layout}"


def constant(value: Any) -> Constant:
    """A constant that compares by type and exact value."""
    return Constant(value, (type(value), repr(value)))


def _dims(dims: tuple[int, int, int]) -> str:
    while len(dims) > 1 and dims[-1] == 1:
        dims = dims[:-1]  # type: ignore[assignment]
    return str(dims[0]) if len(dims) == 1 else str(dims)
