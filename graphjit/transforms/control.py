"""Loops and branches as what backends run: unrolled, or decided on the device.

What a loop carries is a name. In an unrolled one each iteration's nodes get the buffer that the
name stands for then, so that nothing is copied from one iteration to the next, and a swap costs
nothing. In one that runs on the device the name is a pointer of the device's state, which is moved:
a temporary that leaves an iteration is in a part of a pool that no pointer points into.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from numba.cuda import types

from graphjit._control import Body, Branch, Item, Loop
from graphjit._device_control import (
    HostCall,
    Load,
    Move,
    Switch,
)
from graphjit._errors import TraceError
from graphjit._graph import Graph
from graphjit._layout import contiguous
from graphjit._location import Location
from graphjit._nodes import (
    Access,
    Constant,
    Copy,
    Fill,
    Launch,
    Number,
    Operand,
    ScalarRef,
    StateRef,
    View,
    Work,
    constant,
)
from graphjit.kernel import numba_types
from graphjit.transforms.bodies import (
    has_calls,
    weight,
    without_calls,
)
from graphjit.transforms.device_loops import DeviceLoops
from graphjit.transforms.device_numbers import runs_on_devices
from graphjit.transforms.names import Names
from graphjit.transforms.own_results import rebuilt, with_own_results
from graphjit.transforms.pools import with_pools
from graphjit.transforms.region import Region

# So many nodes are unrolled; longer loops the device runs.
_UNROLLED_NODES = 2_000
# So many nodes take some two seconds to schedule, and a CUDA graph as much memory as they need.
_MAX_NODES = 20_000


def lower_control(graph: Graph) -> Graph:
    """A graph that does the same without the loops and branches that functions record.

    Parameters
    ----------
    graph : Graph
        A program.

    Returns
    -------
    Graph
        Itself, if it has none of them.

    Raises
    ------
    TraceError
        If there are too many iterations, or the device can't compute a number that it needs.
    IndexError
        If an iteration indexes an array out of bounds.
    """
    if all(isinstance(node, Work) for node in graph.nodes) and not any(
        scalar.op == "carried" for scalar in graph.scalars
    ):
        return graph
    return _Control(graph).graph()


class _Control(DeviceLoops):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._counted = 0
        # Where what each of them holds now begins: the node, and the version before it.
        self._born: dict[int, tuple[int, int]] = {}
        # How many iterations the loops around have done.
        self._iterations: list[Number] = []
        # What the loops around carry now.
        self._carried: list[list[Operand]] = []

    def graph(self) -> Graph:
        """The graph."""
        given, names = self._given, Names()
        inputs = tuple(
            value if isinstance(value, View) else self._input(value, names)
            for value in given.inputs
        )
        self._add(given.nodes, names)
        results: list[Any] = [
            self._view(output.view, names)
            if isinstance(output, Access)
            else self._scalar(output, names)
            for output in given.outputs
        ]
        outputs = tuple(map(self._output, results))
        made = Graph(
            given.name,
            tuple(self._buffers),
            tuple(self._scalars),
            inputs,
            tuple(self._region.nodes),
            outputs,
            tuple(self._state),
        )
        if all(isinstance(node, Work) for node in made.nodes):
            return with_own_results(made, self._born)
        return with_pools(made)

    def _output(self, result: Operand) -> Access | ScalarRef:
        """What the graph returns for a view or a number, with a copy of what the device placed."""
        if isinstance(result, View):
            if self._buffers[result.buffer].storage != "pointer":
                return self._read(result)
            layout = result.layout
            steps = zip(layout.shape, layout.strides, strict=True)
            if any(n > 1 and stride == 0 for n, stride in steps):
                layout = contiguous(layout.shape, layout.dtype)
            target = self._temporary(layout, "result")
            self._region.append(Copy(self._read(result), self._write(target), self._end))
            return self._read(target)
        if isinstance(result, StateRef):
            dtype = np.dtype(self._state[result.index])
            target = self._temporary(contiguous((), dtype), "result")
            self._region.append(Fill(result, self._write(target), self._end))
            return self._read(target)
        return self._reference(result)

    @property
    def _end(self) -> Location:
        return self._given.nodes[-1].location

    def _add(self, nodes: Iterable[Any], names: Names) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                self._add_loop(node, names)
            elif isinstance(node, Branch):
                self._add_branch(node, names)
            elif isinstance(node, Item):
                self._add_item(node, names)
            elif isinstance(node, HostCall):
                self._add_call(node, names)
            else:
                self._count(node)
                self._region.append(self._work(node, names))

    def _count(self, node: Any) -> None:
        """Count a node or an iteration; raise TraceError if they are too many."""
        self._counted += 1
        if self._counted > _MAX_NODES:
            raise TraceError(
                f"{self._given.name} has more than {_MAX_NODES} nodes (at {node.location}); "
                "call a graphed function of fewer several times"
            )

    def _work(self, node: Work, names: Names) -> Work:
        """A node with what its names stand for."""
        reads = [self._read(self._view(access.view, names)) for access in node.reads]
        views = [self._view(access.view, names) for access in node.writes]
        for buffer in {view.buffer for view in views}:
            self._versions[buffer] += 1
        writes = [self._read(view) for view in views]
        return rebuilt(node, lambda operand: self._operand(operand, names), reads, writes)

    def _add_item(self, item: Item, names: Names) -> None:
        """Let the device read an element."""
        view = self._region.before_update(self._view(item.source.view, names))
        if view is None:
            self._region.flush(item.location)
            view = self._view(item.source.view, names)
        ref = self._new_state(self._given.scalars[item.target.index].type)
        self._region.assign_now(Load(ref, self._read(view)), [ref])
        names.set(item.target, ref)

    def _add_call(self, call: HostCall, names: Names) -> None:
        """Let the host be called, if it is its turn."""
        self._count(call)
        outer, where = self._region, call.location
        due = self._is_due(call)
        if isinstance(due, Constant):
            if due.value:
                values = tuple(self._operand(value, names) for value in call.values)
                outer.append(self._call_of(call, values))
            return
        # What it is called with is worked out where it always is.
        values = tuple(self._operand(value, names) for value in call.values)
        decided = self._new_state(int)
        outer.assign_now(Move((), ((decided, due),)), [decided])
        outer.flush(where, decided)
        made = self._call_of(call, values)
        outer.nodes.append(Switch(decided, ((), (made,)), frozenset(), (), (), where))

    def _call_of(self, call: HostCall, values: tuple[Operand, ...]) -> HostCall:
        reads = tuple(self._read(value) for value in values if isinstance(value, View))
        return dataclasses.replace(call, values=values, every=1, reads=reads)

    def _is_due(self, call: HostCall) -> Number:
        """Whether it is the turn of a call, by the iteration of the loop around it."""
        if call.every == 1:
            return constant(1)
        if not self._iterations:
            return constant(0)
        done, where = self._iterations[-1], call.location
        count = self._plus(done, 1, where)
        if isinstance(count, Constant):
            return constant(int(count.value % call.every == 0))
        rest = self._computed(operator.mod, (count, constant(call.every)), int, where)
        return self._computed(operator.eq, (rest, constant(0)), int, where)

    # -- loops ------------------------------------------------------------------------------------

    def _add_loop(self, loop: Loop, names: Names) -> None:
        lower = self._number(loop.lower, names)
        upper = self._number(loop.upper, names)
        known = isinstance(lower, Constant) and isinstance(upper, Constant)
        if loop.condition is not None or not known:
            self._add_device_loop(loop, names, lower, upper)
            return
        assert isinstance(lower, Constant) and isinstance(upper, Constant)
        bounds = range(lower.value, upper.value)
        if has_calls(loop.body) and len(bounds) > 1:
            periods = {node.every for node in loop.body.nodes if isinstance(node, HostCall)}
            if len(periods) == 1 and not has_calls(without_calls(loop.body)):
                self._add_calling_loop(loop, names, bounds, *periods)
            else:
                self._add_device_loop(loop, names, lower, upper)
            return
        nodes = max(1, weight(loop.body))
        if not loop.body.nodes and all(carry.next == carry.inner for carry in loop.carries):
            bounds = bounds[:1]  # nothing happens in it
        if len(bounds) * nodes <= _UNROLLED_NODES or not self._runs_on_device(loop.body):
            self._unroll(loop, names, bounds)
        else:
            self._check_indices(loop, names, bounds)
            self._add_device_loop(loop, names, lower, upper)

    def _unroll(self, loop: Loop, names: Names, bounds: Iterable[Any]) -> None:
        """Add the nodes of these iterations."""
        carried = [self._operand(carry.initial, names) for carry in loop.carries]
        for index in bounds:
            if not loop.body.nodes:
                self._count(loop)
            carried = self._iterate(loop, names, constant(index), carried)
        self._set_results(loop, names, carried)

    def _iterate(
        self, loop: Loop, names: Names, index: Number, carried: list[Operand]
    ) -> list[Operand]:
        """Add the nodes of one iteration; what the next one is given."""
        self._carried.append(carried)
        self._iterations.append(self._done(loop, names, index))
        inner = Names(names)
        inner.set(loop.index, index)
        for carry, value in zip(loop.carries, carried, strict=True):
            inner.set(carry.inner, value)
        self._instantiate(loop.body, inner)
        self._add(loop.body.nodes, inner)
        self._carried.pop()
        self._iterations.pop()
        return [self._operand(carry.next, inner) for carry in loop.carries]

    def _done(self, loop: Loop, names: Names, index: Number) -> Number:
        """How many iterations were done before this one, if anything in it needs that."""
        lower = constant(0) if loop.condition is not None else self._number(loop.lower, names)
        if not has_calls(loop.body) or (isinstance(lower, Constant) and lower.value == 0):
            return index
        if isinstance(lower, Constant):
            return self._plus(index, -lower.value, loop.location)
        return self._computed(operator.sub, (index, lower), int, loop.location)

    def _instantiate(self, body: Body, names: Names) -> None:
        """Choose the temporaries of an iteration: those of an earlier one that nothing holds."""
        held = {
            buffer
            for values in self._carried
            for value in values
            if isinstance(value, View)
            for buffer in self._may_be(value.buffer)
        }
        for buffer in sorted(body.temporaries):
            made = self._instances.setdefault(buffer, [])
            free = next((each for each in made if each not in held), None)
            if free is None:
                like = self._buffers[buffer]
                free = self._new_buffer("temporary", like.nbytes, f"{like.name}.{len(made)}")
                made.append(free)
            names.buffers[buffer] = free
            self._born[free] = len(self._region.nodes), self._versions[free]

    def _check_indices(self, loop: Loop, names: Names, bounds: range) -> None:
        """Raise IndexError if the first or the last iteration indexes out of bounds."""
        for index in (bounds[0], bounds[-1]):
            inner = Names(names)
            inner.set(loop.index, constant(index))
            for node in loop.body.nodes:
                if isinstance(node, Work):
                    for access in (*node.reads, *node.writes):
                        for step in access.view.moving:
                            if self._is_known(step.index, inner):
                                self._scaled(step, self._scalar(step.index, inner))

    def _is_known(self, ref: ScalarRef | StateRef, names: Names) -> bool:
        """Whether a number is computed from what is constant by now."""
        assert isinstance(ref, ScalarRef)
        found = names.scalar(ref.index)
        if found is not None:
            return isinstance(found, Constant)
        operands = self._given.scalars[ref.index].operands
        return bool(operands) and all(
            isinstance(o, Constant) or self._is_known(o, names) for o in operands
        )

    def _runs_on_device(self, body: Body) -> bool:
        """Whether a loop that could be unrolled can run on the device as well."""
        for node in body.nodes:
            if isinstance(node, Launch) and node.kernel.cooperative:
                return False
            if isinstance(node, Loop) and not self._runs_on_device(node.body):
                return False
            if isinstance(node, Branch) and not all(map(self._runs_on_device, node.bodies)):
                return False
        # Numbers that only the index decides are constants where it is unrolled.
        return all(
            scalar.function is None or runs_on_devices(scalar.function)
            for scalar in self._given.scalars
        )

    # -- branches ---------------------------------------------------------------------------------

    def _add_branch(self, branch: Branch, names: Names) -> None:
        index, where = self._scalar(branch.index, names), branch.location
        if isinstance(index, Constant):
            chosen = branch.bodies[min(max(int(index.value), 0), len(branch.bodies) - 1)]
            for result, value in zip(branch.results, self._add_body(chosen, names), strict=True):
                names.set(result, value)
            return
        outer, bodies, start = self._region, [], len(self._buffers)
        results = [self._like(result) for result in branch.results]
        decided = self._new_state(int)
        clamped = self._clamped(index, len(branch.bodies), where)
        outer.assign_now(Move((), ((decided, clamped),)), [decided])
        outer.flush(where, decided)
        for body in branch.bodies:
            self._region = Region(outer)
            inner = Names(names)
            values = self._add_body(body, inner)
            self._move(list(zip(results, values, strict=True)))
            self._region.flush(where)
            nodes = self._region.nodes
            if self._region.prologue:
                first = Region(None)
                for each in self._region.prologue:
                    first.assign_now(each, ())
                first.flush(where)
                nodes = [*first.nodes, *nodes]
            bodies.append(tuple(nodes))
        self._region = outer
        made = self._made_since(start)
        outer.nodes.append(Switch(decided, tuple(bodies), made, (), (), where))
        outer.changes([r.buffer if isinstance(r, View) else r for r in results])
        for result, value in zip(branch.results, results, strict=True):
            names.set(result, value)

    def _add_body(self, body: Body, names: Names) -> list[Operand]:
        """Add the nodes of a body; its outputs."""
        self._instantiate(body, names)
        self._add(body.nodes, names)
        return [self._operand(output, names) for output in body.outputs]

    def _clamped(self, index: Number, count: int, where: Location) -> Number:
        """An index within bounds."""
        if self._type(index) in (bool, np.bool_):
            return self._computed(int, (index,), int, where)
        if numba_types.class_type(self._type(index)) == types.uint64:
            # Numba compares it with an int64 as floats.
            last = constant(np.uint64(count - 1))
            return self._computed(min, (index, last), int, where)
        least = self._computed(max, (index, constant(0)), int, where)
        return self._computed(min, (least, constant(count - 1)), int, where)
