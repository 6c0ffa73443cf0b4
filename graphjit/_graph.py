"""The Graph: what a traced program does, in SSA form over versions of its buffers.

A graph names base buffers, views of them and host scalars, and lists nodes. Every node that may
write a buffer makes that buffer's next version, and every read names the version it reads. It
knows no backend and no address, and is immutable, hashable and printable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphjit._cached_property import cached_property
from graphjit._control import Branch, Item, Loop, Node
from graphjit._device_control import HostCall, Switch, Update, While, targets
from graphjit._nodes import (
    Access,
    Buffer,
    Constant,
    Copy,
    Fill,
    Launch,
    Operand,
    Scalar,
    ScalarRef,
    StateRef,
    View,
)


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
    nodes : tuple of Node
        In the order eager code would run them.
    outputs : tuple of Access or ScalarRef
        One for each dynamic leaf of the result, in order.
    state : tuple of type
        Classes of the numbers that only the device knows, once loops and branches are lowered.

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
    state: tuple[type, ...] = ()

    @cached_property
    def targets(self) -> dict[int, frozenset[int]]:
        """For each buffer those that it may be: itself, or what a pointer may point into."""
        return targets(self.nodes, self.buffers)

    @property
    def mutated(self) -> frozenset[int]:
        """Indices of the input and closure buffers that a node may write."""
        return frozenset(
            buffer
            for node in self.nodes
            for access in node.writes
            for buffer in self.targets[access.view.buffer]
            if self.buffers[buffer].storage in ("input", "closure")
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
            if buffer.storage in ("closure", "temporary"):
                yield f"    {buffer.name} = {buffer.storage}, {buffer.nbytes} bytes"
        for index, scalar in enumerate(self.scalars):
            if scalar.op not in ("input", "carried"):
                operands = ", ".join(self._operand(o) for o in scalar.operands)
                yield f"    %{index}: {scalar.type.__name__} = {scalar.op}({operands})"
        yield from self._node_lines(self.nodes, "    ")
        yield f"    return {', '.join(self._output(o) for o in self.outputs)}"

    def _node_lines(self, nodes: tuple[Node, ...], margin: str) -> Iterator[str]:
        for node in nodes:
            yield f"{margin}{self.describe(node)}"
            inner = f"{margin}    "
            if isinstance(node, Loop):
                if node.condition is not None:
                    yield from self._node_lines(node.condition.nodes, inner)
                    yield f"{inner}while {self._operand(node.condition.outputs[0])}"
                yield from self._node_lines(node.body.nodes, inner)
                handed = ", ".join(self._operand(carry.next) for carry in node.carries)
                yield f"{inner}next {handed}"
            elif isinstance(node, Branch):
                for number, body in enumerate(node.bodies):
                    yield f"{margin}  {number}:"
                    yield from self._node_lines(body.nodes, inner)
                    yield f"{inner}give {', '.join(map(self._operand, body.outputs))}"
            elif isinstance(node, While):
                yield from self._node_lines(node.nodes, inner)
            elif isinstance(node, Switch):
                for number, nodes in enumerate(node.bodies):
                    yield f"{margin}  {number}:"
                    yield from self._node_lines(nodes, inner)

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
        elif isinstance(node, Loop):
            results = ", ".join(self._operand(carry.result) for carry in node.carries)
            carries = ", ".join(
                f"{self._operand(carry.inner)} = {self._operand(carry.initial)}"
                for carry in node.carries
            )
            what = "while"
            if node.condition is None:
                index, lower, upper = map(self._operand, (node.index, node.lower, node.upper))
                what = f"for {lower} <= {index} < {upper}"
            text = f"{results} = {what} ({carries})"
        elif isinstance(node, Branch):
            results = ", ".join(map(self._operand, node.results))
            text = f"{results} = switch {self._operand(node.index)}"
        elif isinstance(node, Item):
            text = f"{self._operand(node.target)} = item({self._access(node.source)})"
        elif isinstance(node, Copy):
            text = f"copy({self._access(node.source)} -> {self._access(node.target)})"
        elif isinstance(node, Fill):
            text = f"fill({self._operand(node.value)} -> {self._access(node.target)})"
        elif isinstance(node, HostCall):
            name = getattr(getattr(node.function, "args", [node.function])[0], "__name__", "call")
            values = ", ".join(self._operand(value) for value in node.values)
            text = f"host {name}({values})" + (f" every {node.every}" if node.every > 1 else "")
        elif isinstance(node, Update):
            text = f"update of {len(node.all)} values"
            if node.decides is not None:
                text = f"{self._operand(node.decides)} = {text}"
        elif isinstance(node, While):
            text = f"while {self._operand(node.test)}"
        else:
            text = f"switch {self._operand(node.index)}"
        return f"{text}  # {node.location.short}"

    def _operand(
        self,
        operand: Operand,
        reads: dict[View, int] | None = None,
        writes: dict[View, int] | None = None,
    ) -> str:
        if isinstance(operand, ScalarRef):
            return self._scalar(operand)
        if isinstance(operand, StateRef):
            return f"state{operand.index}"
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
        moves = "".join(f"[{self._operand(step.index)}]" for step in view.moving)
        if whole or view.moving:
            return f"{buffer.name}{moves}"
        return f"{buffer.name}+{view.offset}:{view.layout}"


def _dims(dims: tuple[int, int, int]) -> str:
    while len(dims) > 1 and dims[-1] == 1:
        dims = dims[:-1]  # type: ignore[assignment]
    return str(dims[0]) if len(dims) == 1 else str(dims)
