"""Loops as the nodes of all their iterations.

What a loop carries is a name: each iteration's nodes get the buffer that the name stands for then,
so that nothing is copied from one iteration to the next, and a swap costs nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

from graphjit._errors import TraceError
from graphjit._graph import Graph
from graphjit._nodes import (
    Access,
    Buffer,
    Constant,
    Copy,
    Fill,
    Launch,
    Loop,
    Moving,
    Node,
    Operand,
    Scalar,
    ScalarRef,
    View,
    Work,
    constant,
)
from graphjit._scalars import applied

# So many nodes take some two seconds to schedule, and a CUDA graph as much memory as they need.
_MAX_NODES = 20_000


def unroll(graph: Graph) -> Graph:
    """A graph without loops that does the same.

    Parameters
    ----------
    graph : Graph
        A program.

    Returns
    -------
    Graph
        Itself, if it has no loops.

    Raises
    ------
    TraceError
        If there are too many iterations.
    IndexError
        If an iteration indexes an array out of bounds.
    """
    if not any(isinstance(node, Loop) for node in graph.nodes) and not any(
        scalar.op == "carried" for scalar in graph.scalars
    ):
        return graph
    return _Unrolled(graph).graph()


class _Names:
    """What names stand for: those of one iteration, and around it those of the graph."""

    def __init__(self, outer: _Names | None = None) -> None:
        self.outer = outer
        # Carried buffers: the view that each is, and the one that it stands for.
        self.views: dict[int, tuple[View, View]] = {}
        self.scalars: dict[int, ScalarRef | Constant] = {}
        # Temporaries of the body: the buffer that each is in this iteration.
        self.buffers: dict[int, int] = {}

    def scalar(self, index: int) -> ScalarRef | Constant | None:
        """What a scalar is, if that was worked out here or around."""
        scope: _Names | None = self
        while scope is not None:
            if index in scope.scalars:
                return scope.scalars[index]
            scope = scope.outer
        return None

    def set(self, name: View | ScalarRef, value: Operand) -> None:
        """Say what a carried name stands for."""
        if isinstance(name, View):
            assert isinstance(value, View)
            self.views[name.buffer] = name, value
        else:
            assert not isinstance(value, View)
            self.scalars[name.index] = value


class _Unrolled:
    def __init__(self, graph: Graph) -> None:
        self._given = graph
        self._buffers = list(graph.buffers)
        self._versions = [0] * len(graph.buffers)
        self._scalars: list[Scalar] = []
        self._nodes: list[Work] = []
        self._counted = 0
        # Scalars that were made, by what they are made of.
        self._made: dict[tuple[int, tuple[Any, ...]], ScalarRef | Constant] = {}
        # Buffers that stand for a temporary of a body in some iteration.
        self._instances: dict[int, list[int]] = {}
        # Where what each of them holds now begins: the node, and the version before it.
        self._born: dict[int, tuple[int, int]] = {}
        # What the loops around carry now.
        self._carried: list[list[Operand]] = []

    def graph(self) -> Graph:
        """The graph without loops."""
        given, names = self._given, _Names()
        inputs = tuple(
            value if isinstance(value, View) else self._input(value, names)
            for value in given.inputs
        )
        self._add(given.nodes, names)
        outputs = tuple(
            self._read(self._view(output.view, names))
            if isinstance(output, Access)
            else self._reference(self._scalar(output, names))
            for output in given.outputs
        )
        outputs = self._with_own_results(outputs)
        return Graph(
            given.name,
            tuple(self._buffers),
            tuple(self._scalars),
            inputs,
            tuple(self._nodes),
            outputs,
        )

    def _input(self, ref: ScalarRef, names: _Names) -> ScalarRef:
        made = self._new_scalar(self._given.scalars[ref.index])
        names.set(ref, made)
        return made

    def _add(self, nodes: Iterable[Node], names: _Names) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                self._add_loop(node, names)
                continue
            self._count(node)
            self._nodes.append(self._work(node, names))

    def _count(self, node: Node) -> None:
        """Count a node or an iteration; raise TraceError if they are too many."""
        self._counted += 1
        if self._counted > _MAX_NODES:
            raise TraceError(
                f"{self._given.name} has loops of more than {_MAX_NODES} nodes or iterations in "
                f"all (at {node.location}): loops that run on the device don't work yet; call a "
                "graphed function of fewer iterations several times"
            )

    def _work(self, node: Work, names: _Names) -> Work:
        """A node with what its names stand for."""
        reads = [self._read(self._view(access.view, names)) for access in node.reads]
        views = [self._view(access.view, names) for access in node.writes]
        for buffer in {view.buffer for view in views}:
            self._versions[buffer] += 1
        writes = [self._read(view) for view in views]
        return _rebuilt(node, lambda operand: self._operand(operand, names), reads, writes)

    def _add_loop(self, loop: Loop, names: _Names) -> None:
        carried = [self._operand(carry.initial, names) for carry in loop.carries]
        self._carried.append(carried)
        for index in range(loop.lower, loop.upper):
            if not loop.nodes:
                self._count(loop)
            inner = _Names(names)
            inner.set(loop.index, constant(index))
            for carry, value in zip(loop.carries, carried, strict=True):
                inner.set(carry.inner, value)
            self._instantiate(loop, inner)
            self._add(loop.nodes, inner)
            carried[:] = [self._operand(carry.next, inner) for carry in loop.carries]
        self._carried.pop()
        for carry, value in zip(loop.carries, carried, strict=True):
            names.set(carry.result, value)

    def _instantiate(self, loop: Loop, names: _Names) -> None:
        """Choose the buffers of an iteration: those of an earlier one that nothing holds."""
        held = {
            value.buffer for values in self._carried for value in values if isinstance(value, View)
        }
        for buffer in loop.temporaries:
            made = self._instances.setdefault(buffer, [])
            free = next((each for each in made if each not in held), None)
            if free is None:
                free = len(self._buffers)
                like = self._buffers[buffer]
                name = f"{like.name}.{len(made)}"
                self._buffers.append(Buffer(free, "temporary", like.nbytes, name))
                self._versions.append(0)
                made.append(free)
            names.buffers[buffer] = free
            self._born[free] = len(self._nodes), self._versions[free]

    def _with_own_results(
        self, outputs: tuple[Access | ScalarRef, ...]
    ) -> tuple[Access | ScalarRef, ...]:
        """Give results buffers that no other iteration uses: each call brings new ones."""
        moved: dict[int, tuple[int, int, int]] = {}
        for output in outputs:
            if isinstance(output, Access) and output.view.buffer in self._born:
                buffer = output.view.buffer
                node, version = self._born[buffer]
                if version and buffer not in moved:
                    like = self._buffers[buffer]
                    moved[buffer] = len(self._buffers), node, version
                    name = f"{like.name}.result"
                    self._buffers.append(Buffer(len(self._buffers), "temporary", like.nbytes, name))

        def renamed(view: View, place: int) -> tuple[View, int]:
            new, node, version = moved.get(view.buffer, (0, len(self._nodes) + 1, 0))
            if place < node:
                return view, 0
            return dataclasses.replace(view, buffer=new), version

        def access(old: Access, place: int) -> Access:
            view, version = renamed(old.view, place)
            return Access(view, old.version - version)

        def operand(old: Operand, place: int) -> Operand:
            return renamed(old, place)[0] if isinstance(old, View) else old

        first = min((node for _, node, _ in moved.values()), default=len(self._nodes))
        for place in range(first, len(self._nodes)):
            work = self._nodes[place]
            self._nodes[place] = _rebuilt(
                work,
                functools.partial(operand, place=place),
                [access(each, place) for each in work.reads],
                [access(each, place) for each in work.writes],
            )
        end = len(self._nodes)
        return tuple(access(o, end) if isinstance(o, Access) else o for o in outputs)

    # -- what names stand for ---------------------------------------------------------------------

    def _operand(self, operand: Operand, names: _Names) -> Operand:
        if isinstance(operand, View):
            return self._view(operand, names)
        return self._scalar(operand, names)

    def _view(self, view: View, names: _Names) -> View:
        offset = view.offset + sum(self._moved(step, names) for step in view.moving)
        scope: _Names | None = names
        while scope is not None:
            if view.buffer in scope.views:
                name, value = scope.views[view.buffer]
                return View(value.buffer, value.offset + offset - name.offset, view.layout)
            if view.buffer in scope.buffers:
                return View(scope.buffers[view.buffer], offset, view.layout)
            scope = scope.outer
        return View(view.buffer, offset, view.layout)

    def _moved(self, step: Moving, names: _Names) -> int:
        index = self._scalar(step.index, names)
        assert isinstance(index, Constant)
        value = int(index.value)
        if not -step.length <= value < step.length:
            raise IndexError(
                f"index {value} is out of bounds for an axis of {step.length} elements "
                f"(at {step.location})"
            )
        return (value + step.length if value < 0 else value) * step.stride

    def _scalar(self, operand: ScalarRef | Constant, names: _Names) -> ScalarRef | Constant:
        if isinstance(operand, Constant):
            return operand
        # No recursion: a number may be computed in thousands of steps, each used many times.
        pending = [operand.index]
        while pending:
            index = pending.pop()
            if names.scalar(index) is not None:
                continue
            needed = (o for o in self._given.scalars[index].operands if isinstance(o, ScalarRef))
            missing = [o.index for o in needed if names.scalar(o.index) is None]
            if missing:
                pending += [index, *missing]
            else:
                names.scalars[index] = self._made_of(index, names)
        found = names.scalar(operand.index)
        assert found is not None
        return found

    def _made_of(self, index: int, names: _Names) -> ScalarRef | Constant:
        """The result of an operation on what its operands are by now."""
        scalar = self._given.scalars[index]
        operands: tuple[ScalarRef | Constant, ...] = ()
        for operand in scalar.operands:
            value = names.scalar(operand.index) if isinstance(operand, ScalarRef) else operand
            assert value is not None
            operands += (value,)
        made = self._made.get((index, operands))
        if made is None:
            values = [o.value for o in operands if isinstance(o, Constant)]
            if len(values) == len(operands):
                made = constant(applied(scalar, values))
            else:
                made = self._new_scalar(dataclasses.replace(scalar, operands=operands))
            self._made[index, operands] = made
        return made

    def _reference(self, operand: ScalarRef | Constant) -> ScalarRef:
        """A scalar with that value."""
        if isinstance(operand, ScalarRef):
            return operand
        scalar = Scalar("constant", _itself, (operand,), type(operand.value))
        return self._new_scalar(scalar)

    def _new_scalar(self, scalar: Scalar) -> ScalarRef:
        self._scalars.append(scalar)
        return ScalarRef(len(self._scalars) - 1)

    def _read(self, view: View) -> Access:
        return Access(view, self._versions[view.buffer])


def _rebuilt(
    work: Work, operand: Callable[[Operand], Operand], reads: list[Access], writes: list[Access]
) -> Work:
    """The same work on other operands."""
    if isinstance(work, Launch):
        return dataclasses.replace(
            work,
            operands=tuple(map(operand, work.operands)),
            reads=tuple(dict.fromkeys(reads)),
            writes=tuple(dict.fromkeys(writes)),
        )
    if isinstance(work, Copy):
        return Copy(reads[0], writes[0], work.location)
    value = operand(work.value)
    assert not isinstance(value, View)
    return Fill(value, writes[0], work.location)


def _itself(value: Any) -> Any:
    return value
