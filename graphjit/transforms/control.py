"""Loops and branches as what backends run: unrolled, or decided on the device.

What a loop carries is a name. In an unrolled one each iteration's nodes get the buffer that the
name stands for then, so that nothing is copied from one iteration to the next, and a swap costs
nothing. In one that runs on the device the name is a pointer of the device's state, which is moved:
a temporary that leaves an iteration is in a part of a pool that no pointer points into.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numba.cuda import types

from graphjit._control import Body, Branch, Item, Loop
from graphjit._device_control import (
    Choose,
    HostCall,
    Load,
    Move,
    Switch,
    While,
    used,
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
from graphjit.transforms.device_numbers import runs_on_devices
from graphjit.transforms.names import Names
from graphjit.transforms.own_results import rebuilt, with_own_results
from graphjit.transforms.pools import with_pools
from graphjit.transforms.region import Region, State
from graphjit.transforms.values import Lowered, Values

# So many nodes are unrolled; in longer loops so many are, and the device counts.
_UNROLLED_NODES = 2_000
_CHUNK_NODES = 128
# So many numbers and places at most are computed for that in one update, which Numba compiles.
_CHUNK_NUMBERS = 16
# Iterations at a time where only the run knows how many there are.
_CHUNK = 8
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


@dataclass(frozen=True)
class _DeviceLoop:
    """A loop that the device runs, and its state.

    Parameters
    ----------
    loop, names
        The loop, and what names mean around it.
    test, index : StateRef
        Whether there is another iteration, and its index.
    upper : Number
        Where the index ends.
    carried, kept : list
        What stands for what it carries, and whether that never changes.
    """

    loop: Loop
    names: Names
    test: StateRef
    index: StateRef
    upper: Number
    carried: list[Operand]
    kept: list[bool]


class _Control(Values):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._counted = 0
        # Buffers that stand for a temporary of a body in some iteration.
        self._instances: dict[int, list[int]] = {}
        # Where what each of them holds now begins: the node, and the version before it.
        self._born: dict[int, tuple[int, int]] = {}
        # How many iterations the loops around have done.
        self._iterations: list[Number] = []
        # What the loops around carry now.
        self._carried: list[list[Operand]] = []
        # Buffers with parts for temporaries that leave an iteration.
        self._pools: set[int] = set()

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
        if _has_calls(loop.body) and len(bounds) > 1:
            periods = {node.every for node in loop.body.nodes if isinstance(node, HostCall)}
            if len(periods) == 1 and not _has_calls(_without_calls(loop.body)):
                self._add_calling_loop(loop, names, bounds, *periods)
            else:
                self._add_device_loop(loop, names, lower, upper)
            return
        nodes = max(1, _weight(loop.body))
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
        if not _has_calls(loop.body) or (isinstance(lower, Constant) and lower.value == 0):
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

    def _add_device_loop(self, loop: Loop, names: Names, lower: Number, upper: Number) -> None:
        """Let the device count, or test, and hand on."""
        chunk, counted = 1, isinstance(lower, Constant) and isinstance(upper, Constant)
        if loop.condition is None and _is_flat(loop.body):
            numbers = self._numbers(loop, names)
            chunk = max(1, _CHUNK_NODES // max(1, _weight(loop.body)))
            chunk = max(1, min(chunk, _CHUNK_NUMBERS // max(1, numbers)))
            if not counted:
                chunk = 1 if chunk < 2 * _CHUNK else _CHUNK
        run = self._entered(loop, names, lower, upper)

        def several(index: Number, now: list[Operand], count: int = chunk) -> list[Operand]:
            for step in range(count):
                at = self._plus(index, step, loop.location) if loop.condition is None else index
                now = self._iterate(loop, names, at, now)
            return now

        self._repeat(run, chunk, several)
        carried = run.carried
        if isinstance(lower, Constant) and isinstance(upper, Constant):
            bounds = range(lower.value, upper.value)
            for each in bounds[len(bounds) // chunk * chunk :]:
                carried = self._iterate(loop, names, constant(each), carried)
        elif chunk > 1:
            self._repeat(run, 1, functools.partial(several, count=1))
        self._set_results(loop, names, carried)

    def _numbers(self, loop: Loop, names: Names) -> int:
        """How many numbers and places the device computes for an iteration."""
        places, pending = set(), [carry.next for carry in loop.carries]
        for node in loop.body.nodes:
            for view in used(node):
                if view.moving:
                    places.add(view)
                    pending += [step.index for step in view.moving]
            values = getattr(node, "operands", ()) or (getattr(node, "value", None),)
            pending += [value for value in values if isinstance(value, ScalarRef)]
        seen: set[ScalarRef] = set()
        while pending:
            ref = pending.pop()
            if isinstance(ref, ScalarRef) and ref not in seen and names.scalar(ref.index) is None:
                seen.add(ref)
                pending += self._given.scalars[ref.index].operands
        # What is carried, and the index, isn't computed.
        return len(places) + sum(bool(self._given.scalars[ref.index].function) for ref in seen)

    def _add_calling_loop(self, loop: Loop, names: Names, bounds: range, period: int) -> None:
        """Let the host be called in the last of so many iterations, and again."""
        quiet = dataclasses.replace(loop, body=_without_calls(loop.body))
        calling = dataclasses.replace(loop, body=_calling_always(loop.body))
        turns = len(bounds) // period
        called = bounds[: turns * period]

        def block(index: Number, now: list[Operand]) -> list[Operand]:
            now = self._part(quiet, names, index, period - 1, now)
            return self._iterate(calling, names, self._plus(index, period - 1, where), now)

        where = loop.location
        carried = [self._operand(carry.initial, names) for carry in loop.carries]
        if turns:
            run = self._entered(loop, names, constant(called.start), constant(called.stop))
            self._repeat(run, period, block)
            carried = run.carried
        rest = bounds[len(called) :]
        carried = self._part(quiet, names, constant(rest.start), len(rest), carried)
        self._set_results(loop, names, carried)

    def _part(
        self, loop: Loop, names: Names, start: Number, count: int, carried: list[Operand]
    ) -> list[Operand]:
        """Add so many iterations of a loop, from one on; what the next is given."""
        if not count:
            return carried
        scope = Names(names)
        carries = tuple(
            dataclasses.replace(carry, initial=cast(Any, Lowered(value)))
            for carry, value in zip(loop.carries, carried, strict=True)
        )
        end = self._plus(start, count, loop.location)
        bounds: dict[str, Any] = {"lower": Lowered(start), "upper": Lowered(end)}
        part = dataclasses.replace(loop, carries=carries, **bounds)
        self._add_loop(part, scope)
        return [self._operand(carry.result, scope) for carry in loop.carries]

    def _plus(self, number: Number, more: int, where: Location) -> Number:
        if isinstance(number, Constant):
            return constant(number.value + more)
        return (
            self._computed(operator.add, (number, constant(more)), int, where) if more else number
        )

    def _set_results(self, loop: Loop, names: Names, carried: list[Operand]) -> None:
        for carry, value in zip(loop.carries, carried, strict=True):
            names.set(carry.result, value)

    def _entered(self, loop: Loop, names: Names, lower: Number, upper: Number) -> _DeviceLoop:
        """The state of a loop, with what its first iteration is given."""
        initial = [self._operand(carry.initial, names) for carry in loop.carries]
        kept = [carry.next == carry.inner for carry in loop.carries]
        carried: list[Operand] = [
            value if is_kept else self._like(carry.inner)
            for carry, value, is_kept in zip(loop.carries, initial, kept, strict=True)
        ]
        run = _DeviceLoop(
            loop, names, self._new_state(bool), self._new_state(int), upper, carried, kept
        )
        self._hand_on(run, initial, lower)
        return run

    def _hand_on(self, run: _DeviceLoop, values: list[Operand], index: Number) -> None:
        """Give the next iteration its values and its index."""
        pairs = [
            (target, value)
            for target, value, is_kept in zip(run.carried, values, run.kept, strict=True)
            if not is_kept
        ]
        if run.loop.condition is None or _has_calls(run.loop.body):
            pairs.append((run.index, index))
        self._move(pairs)

    def _repeat(
        self,
        run: _DeviceLoop,
        stride: int,
        iterate: Callable[[Number, list[Operand]], list[Operand]],
    ) -> None:
        """Add a While whose body is so many iterations."""
        outer, instances, first = self._region, self._instances, len(self._buffers)
        # What is due before the loop waits for the update that decides whether it begins.
        body = Region(outer)
        self._region, self._instances = body, {}
        now = iterate(run.index, run.carried)
        self._hand_on(run, now, self._plus(run.index, stride, run.loop.location))
        self._choose(body, run.carried, first)
        self._decide(run, stride, body.prologue)
        self._region, self._instances = outer, instances
        # The same decision before the first iteration.
        self._decide(run, stride, body.prologue)
        pointers = tuple(
            value.buffer
            for value, is_kept in zip(run.carried, run.kept, strict=True)
            if isinstance(value, View) and not is_kept
        )
        made, where = self._made_since(first), run.loop.location
        outer.append(While(run.test, tuple(body.nodes), pointers, made, (), (), where))
        state = [ref for ref in (run.index, *run.carried) if isinstance(ref, StateRef)]
        outer.changes([*pointers, *state])

    def _decide(self, run: _DeviceLoop, stride: int, prologue: list[Any]) -> None:
        """Add what decides whether there is another iteration, from what is carried by now."""
        region, loop = self._region, run.loop
        if loop.condition is None:
            last = self._plus(run.index, stride - 1, loop.location)
            holds: Number = self._computed(operator.lt, (last, run.upper), bool, loop.location)
        else:
            inner = Names(run.names)
            for carry, value in zip(loop.carries, run.carried, strict=True):
                inner.set(carry.inner, value)
            self._instantiate(loop.condition, inner)
            self._add(loop.condition.nodes, inner)
            holds = self._number(loop.condition.outputs[0], inner)
        region.assign_now(Move((), ((run.test, holds),)), [run.test])
        region.flush(loop.location, run.test, prologue)

    def _choose(self, region: Region, carried: list[Operand], first: int) -> None:
        """Make pointers of temporaries that an iteration made and others may find."""
        reached = {
            buffer
            for value in carried
            if isinstance(value, View) and self._buffers[value.buffer].storage == "pointer"
            for buffer in self._may_be(value.buffer)
        }
        for buffer in sorted(reached):
            is_own = buffer >= first and self._buffers[buffer].storage == "temporary"
            if is_own and buffer not in self._pools:
                old = self._buffers[buffer]
                self._buffers[buffer] = dataclasses.replace(old, storage="pointer")
                pool = self._new_buffer("temporary", old.nbytes, f"{old.name}.pool")
                self._pools.add(pool)
                self._sources.setdefault(buffer, set()).add(pool)
                region.prologue.insert(0, Choose(buffer, pool, 0, 0, ()))

    def _move(self, pairs: list[tuple[Operand, Operand]]) -> None:
        """Give pointers and numbers new values, all at once."""
        pointers: list[tuple[int, View]] = []
        numbers: list[tuple[StateRef, Number]] = []
        for target, value in pairs:
            if isinstance(target, View):
                assert isinstance(value, View)
                self._sources.setdefault(target.buffer, set()).add(value.buffer)
                pointers.append((target.buffer, value))
            else:
                assert isinstance(target, StateRef) and not isinstance(value, View)
                numbers.append((target, value))
        if pairs:
            changed: list[State] = [*(p for p, _ in pointers), *(n for n, _ in numbers)]
            self._region.assign_now(Move(tuple(pointers), tuple(numbers)), changed)

    def _like(self, name: View | ScalarRef) -> View | StateRef:
        """New state that a carried name can stand for."""
        if isinstance(name, ScalarRef):
            return self._new_state(self._given.scalars[name.index].type)
        like = self._buffers[name.buffer]
        return dataclasses.replace(name, buffer=self._pointer(like.nbytes, like.name))

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


def _is_flat(body: Body) -> bool:
    """Whether a body is nothing but pieces of work and loops of so many of them."""
    return all(
        isinstance(node, Work)
        or (
            isinstance(node, Loop)
            and isinstance(node.lower, Constant)
            and isinstance(node.upper, Constant)
            and node.condition is None
            and _is_flat(node.body)
        )
        for node in body.nodes
    )


def _has_calls(body: Body) -> bool:
    """Whether nodes of a body call the host."""
    return any(
        isinstance(node, HostCall)
        or (isinstance(node, Loop) and _has_calls(node.body))
        or (isinstance(node, Branch) and any(map(_has_calls, node.bodies)))
        for node in body.nodes
    )


def _without_calls(body: Body) -> Body:
    """A body without its own calls of the host."""
    nodes = tuple(node for node in body.nodes if not isinstance(node, HostCall))
    return dataclasses.replace(body, nodes=nodes)


def _calling_always(body: Body) -> Body:
    """A body that calls the host each time it runs."""
    nodes = (
        dataclasses.replace(node, every=1) if isinstance(node, HostCall) else node
        for node in body.nodes
    )
    return dataclasses.replace(body, nodes=tuple(nodes))


def _weight(body: Body) -> int:
    """How many nodes a body is, unrolled."""
    total = 0
    for node in body.nodes:
        if isinstance(node, Loop):
            times = 1
            if isinstance(node.lower, Constant) and isinstance(node.upper, Constant):
                times = max(0, node.upper.value - node.lower.value)
            total += 1 + times * _weight(node.body)
        elif isinstance(node, Branch):
            total += 1 + sum(map(_weight, node.bodies))
        else:
            total += 1
    return total
