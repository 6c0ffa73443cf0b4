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
from typing import Any

import numpy as np

from graphjit._control import Body, Branch, Item, Loop
from graphjit._device_control import (
    Choose,
    Compute,
    Load,
    Move,
    Point,
    Switch,
    While,
)
from graphjit._errors import TraceError
from graphjit._graph import Graph
from graphjit._layout import Layout, contiguous
from graphjit._location import Location
from graphjit._nodes import (
    Access,
    Buffer,
    Constant,
    Copy,
    Fill,
    Launch,
    Moving,
    Number,
    Operand,
    Scalar,
    ScalarRef,
    StateRef,
    View,
    Work,
    constant,
)
from graphjit._scalars import applied, runs_on_devices
from graphjit.transforms.names import Names
from graphjit.transforms.pools import with_pools
from graphjit.transforms.region import Region, State

# So many nodes are unrolled; in longer loops so many are, and the device counts.
_UNROLLED_NODES = 2_000
_CHUNK_NODES = 128
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
    return _Lowered(graph).graph()


class _Lowered:
    def __init__(self, graph: Graph) -> None:
        self._given = graph
        self._buffers = list(graph.buffers)
        self._versions = [0] * len(graph.buffers)
        self._scalars: list[Scalar] = []
        self._state: list[type] = []
        self._region = Region(None)
        self._counted = 0
        # Host scalars that were made, by what they are made of.
        self._made: dict[tuple[int, tuple[Any, ...]], ScalarRef | Constant] = {}
        # Buffers that stand for a temporary of a body in some iteration.
        self._instances: dict[int, list[int]] = {}
        # Where what each of them holds now begins: the node, and the version before it.
        self._born: dict[int, tuple[int, int]] = {}
        # What the loops around carry now.
        self._carried: list[list[Operand]] = []
        # Buffers with parts for temporaries that leave an iteration.
        self._pools: set[int] = set()
        # What pointers may be given.
        self._sources: dict[int, set[int]] = {}

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
        if not self._state and not self._sources:
            outputs = self._with_own_results(outputs)
        made = Graph(
            given.name,
            tuple(self._buffers),
            tuple(self._scalars),
            inputs,
            tuple(self._region.nodes),
            outputs,
            tuple(self._state),
        )
        return with_pools(made) if self._sources else made

    def _input(self, ref: ScalarRef, names: Names) -> ScalarRef:
        made = self._new_scalar(self._given.scalars[ref.index])
        names.set(ref, made)
        return made

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
        return _rebuilt(node, lambda operand: self._operand(operand, names), reads, writes)

    def _add_item(self, item: Item, names: Names) -> None:
        """Let the device read an element."""
        view = self._region.before_update(self._view(item.source.view, names))
        if view is None:
            self._region.flush(item.location)
            view = self._view(item.source.view, names)
        ref = self._new_state(self._given.scalars[item.target.index].type)
        self._region.assign_now(Load(ref, self._read(view)), [ref])
        names.set(item.target, ref)

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
        nodes = max(1, _weight(loop.body))
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
        for carry, value in zip(loop.carries, carried, strict=True):
            names.set(carry.result, value)

    def _iterate(
        self, loop: Loop, names: Names, index: Number, carried: list[Operand]
    ) -> list[Operand]:
        """Add the nodes of one iteration; what the next one is given."""
        self._carried.append(carried)
        inner = Names(names)
        inner.set(loop.index, index)
        for carry, value in zip(loop.carries, carried, strict=True):
            inner.set(carry.inner, value)
        self._instantiate(loop.body, inner)
        self._add(loop.body.nodes, inner)
        self._carried.pop()
        return [self._operand(carry.next, inner) for carry in loop.carries]

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

    def _may_be(self, buffer: int) -> set[int]:
        """A buffer, and all that it may be if it is a pointer."""
        found, pending = {buffer}, [buffer]
        while pending:
            new = self._sources.get(pending.pop(), set()) - found
            found |= new
            pending += new
        return found

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
        initial = [self._operand(carry.initial, names) for carry in loop.carries]
        kept = [carry.next == carry.inner for carry in loop.carries]
        carried: list[Operand] = [
            value if is_kept else self._like(carry.inner)
            for carry, value, is_kept in zip(loop.carries, initial, kept, strict=True)
        ]
        test = self._new_state(bool)
        index = self._new_state(int)
        moved = [
            (target, value)
            for target, value, is_kept in zip(carried, initial, kept, strict=True)
            if not is_kept
        ]
        counted = isinstance(lower, Constant) and isinstance(upper, Constant)
        if not loop.body.nodes and not moved and loop.condition is None:
            self._count(loop)
            for carry, value in zip(loop.carries, carried, strict=True):
                names.set(carry.result, value)
            return
        chunk = 1
        if loop.condition is None:
            moved.append((index, lower))
            chunk = max(1, _CHUNK_NODES // max(1, _weight(loop.body)))
        self._move(moved)
        if not counted and chunk > 1:
            chunk = 1 if chunk < 4 else 8
        self._repeat(loop, names, test, index, upper, carried, kept, chunk)
        if counted:
            assert isinstance(lower, Constant) and isinstance(upper, Constant)
            rest = range(lower.value, upper.value)[(upper.value - lower.value) // chunk * chunk :]
            for each in rest:
                carried = self._iterate(loop, names, constant(each), carried)
        elif chunk > 1:
            self._repeat(loop, names, test, index, upper, carried, kept, 1)
        for carry, value in zip(loop.carries, carried, strict=True):
            names.set(carry.result, value)

    def _repeat(
        self,
        loop: Loop,
        names: Names,
        test: StateRef,
        index: StateRef,
        upper: Number,
        carried: list[Operand],
        kept: list[bool],
        chunk: int,
    ) -> None:
        """Add a While whose body is so many iterations."""
        outer, instances, first = self._region, self._instances, len(self._buffers)
        # What is due before the loop waits for the update that decides whether it begins.
        body = Region(outer)
        self._region, self._instances = body, {}
        now: list[Operand] = carried
        for step in range(chunk):
            at: Number = index
            if step and loop.condition is None:
                at = self._computed(operator.add, (index, constant(step)), int, loop.location)
            now = self._iterate(loop, names, at, now)
        pairs = [
            (target, value)
            for target, value, is_kept in zip(carried, now, kept, strict=True)
            if not is_kept
        ]
        if loop.condition is None:
            following = self._computed(operator.add, (index, constant(chunk)), int, loop.location)
            pairs.append((index, following))
        self._move(pairs)
        self._choose(body, carried, first)
        self._decide(loop, names, test, index, upper, carried, chunk, body.prologue)
        self._region, self._instances = outer, instances
        # The same decision before the first iteration.
        self._decide(loop, names, test, index, upper, carried, chunk, body.prologue)
        pointers = tuple(
            value.buffer
            for value, is_kept in zip(carried, kept, strict=True)
            if isinstance(value, View) and not is_kept
        )
        made = self._made_since(first)
        outer.append(While(test, tuple(body.nodes), pointers, made, (), (), loop.location))
        state = [ref for ref in (index, *carried) if isinstance(ref, StateRef)]
        outer.changes([*pointers, *state])

    def _decide(
        self,
        loop: Loop,
        names: Names,
        test: StateRef,
        index: StateRef,
        upper: Number,
        carried: list[Operand],
        chunk: int,
        prologue: list[Any],
    ) -> None:
        """Add what decides whether there is another iteration, from what is carried by now."""
        region = self._region
        if loop.condition is None:
            last: Number = index
            if chunk > 1:
                last = self._computed(
                    operator.add, (index, constant(chunk - 1)), int, loop.location
                )
            holds: Number = self._computed(operator.lt, (last, upper), bool, loop.location)
        else:
            inner = Names(names)
            for carry, value in zip(loop.carries, carried, strict=True):
                inner.set(carry.inner, value)
            self._instantiate(loop.condition, inner)
            self._add(loop.condition.nodes, inner)
            holds = self._number(loop.condition.outputs[0], inner)
        region.assign_now(Move((), ((test, holds),)), [test])
        region.flush(loop.location, test, prologue)

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
        least = self._computed(max, (index, constant(0)), int, where)
        return self._computed(min, (least, constant(count - 1)), int, where)

    # -- results ----------------------------------------------------------------------------------

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
                    new = self._new_buffer("temporary", like.nbytes, f"{like.name}.result")
                    moved[buffer] = new, node, version
        nodes = self._region.nodes

        def renamed(view: View, place: int) -> tuple[View, int]:
            new, node, version = moved.get(view.buffer, (0, len(nodes) + 1, 0))
            if place < node:
                return view, 0
            return dataclasses.replace(view, buffer=new), version

        def access(old: Access, place: int) -> Access:
            view, version = renamed(old.view, place)
            return Access(view, old.version - version)

        def operand(old: Operand, place: int) -> Operand:
            return renamed(old, place)[0] if isinstance(old, View) else old

        first = min((node for _, node, _ in moved.values()), default=len(nodes))
        for place in range(first, len(nodes)):
            work = nodes[place]
            assert isinstance(work, Work)
            nodes[place] = _rebuilt(
                work,
                functools.partial(operand, place=place),
                [access(each, place) for each in work.reads],
                [access(each, place) for each in work.writes],
            )
        end = len(nodes)
        return tuple(access(o, end) if isinstance(o, Access) else o for o in outputs)

    # -- what names stand for ---------------------------------------------------------------------

    def _operand(self, operand: Operand, names: Names) -> Operand:
        if isinstance(operand, View):
            return self._view(operand, names)
        return self._number(operand, names)

    def _number(self, operand: Operand, names: Names) -> Number:
        assert not isinstance(operand, View)
        return self._scalar(operand, names)

    def _view(self, view: View, names: Names) -> View:
        buffer, offset = names.view(view.buffer)
        offset += view.offset
        moving = []
        for step in view.moving:
            index = self._scalar(step.index, names)
            if isinstance(index, Constant):
                offset += self._scaled(step, index)
            else:
                moving.append(dataclasses.replace(step, index=index))
        place = View(buffer, offset, view.layout, tuple(moving))
        return self._pointed_to(place) if moving else place

    def _pointed_to(self, view: View) -> View:
        """A view that moves with numbers of the device, through a pointer of its own."""
        low, high = view.layout.extent

        def point() -> tuple[State, Any]:
            target = self._pointer(high - low, self._buffers[view.buffer].name)
            self._sources[target] = {view.buffer}
            return target, Point(target, view)

        needs: list[State] = [view.buffer]
        needs += [step.index for step in view.moving if isinstance(step.index, StateRef)]
        target = self._region.assigned(view, needs, point)
        assert isinstance(target, int)
        return View(target, -low, view.layout)

    def _scaled(self, step: Moving, index: Any) -> int:
        """The bytes of a constant index."""
        value = int(index.value)
        if not -step.length <= value < step.length:
            raise IndexError(
                f"index {value} is out of bounds for an axis of {step.length} elements "
                f"(at {step.location})"
            )
        return (value + step.length if value < 0 else value) * step.stride

    def _scalar(self, operand: Number, names: Names) -> Number:
        if not isinstance(operand, ScalarRef):
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

    def _made_of(self, index: int, names: Names) -> Number:
        """The result of an operation on what its operands are by now."""
        scalar = self._given.scalars[index]
        operands: tuple[Number, ...] = ()
        for operand in scalar.operands:
            value = names.scalar(operand.index) if isinstance(operand, ScalarRef) else operand
            assert value is not None
            operands += (value,)
        if any(isinstance(o, StateRef) for o in operands):
            assert scalar.function is not None
            if not runs_on_devices(scalar.function):
                raise TraceError(
                    f"{scalar.op} can't be computed on the device (at {scalar.location}); compute "
                    "it in a kernel, from arrays"
                )
            return self._computed(scalar.function, operands, scalar.type, scalar.location)
        made = self._made.get((index, operands))
        if made is None:
            values = [o.value for o in operands if isinstance(o, Constant)]
            if len(values) == len(operands):
                made = constant(applied(scalar, values))
            else:
                refs = tuple(o for o in operands if not isinstance(o, StateRef))
                made = self._new_scalar(dataclasses.replace(scalar, operands=refs))
            self._made[index, operands] = made
        return made

    def _computed(
        self,
        function: Callable[..., Any],
        operands: tuple[Number, ...],
        type_: type,
        where: Location | None,
    ) -> StateRef:
        """A number that the device computes."""

        def compute() -> tuple[State, Any]:
            ref = self._new_state(type_)
            return ref, Compute(ref, function, operands, where)

        needs = [o for o in operands if isinstance(o, StateRef)]
        found = self._region.assigned((function, operands, type_), needs, compute)
        assert isinstance(found, StateRef)
        return found

    def _type(self, number: Number) -> type:
        if isinstance(number, Constant):
            return type(number.value)
        if isinstance(number, StateRef):
            return self._state[number.index]
        return self._scalars[number.index].type

    def _reference(self, operand: Number) -> ScalarRef:
        """A scalar with that value."""
        if isinstance(operand, ScalarRef):
            return operand
        assert isinstance(operand, Constant)
        scalar = Scalar("constant", _itself, (operand,), type(operand.value))
        return self._new_scalar(scalar)

    # -- what is new ------------------------------------------------------------------------------

    def _new_scalar(self, scalar: Scalar) -> ScalarRef:
        self._scalars.append(scalar)
        return ScalarRef(len(self._scalars) - 1)

    def _new_state(self, type_: type) -> StateRef:
        self._state.append(type_)
        return StateRef(len(self._state) - 1)

    def _new_buffer(self, storage: Any, nbytes: int, name: str) -> int:
        self._buffers.append(Buffer(len(self._buffers), storage, nbytes, name))
        self._versions.append(0)
        return len(self._buffers) - 1

    def _made_since(self, first: int) -> frozenset[int]:
        """The temporaries from a buffer on."""
        new = range(first, len(self._buffers))
        return frozenset(b for b in new if self._buffers[b].storage == "temporary")

    def _pointer(self, nbytes: int, name: str) -> int:
        made = self._new_buffer("pointer", nbytes, f"*{name}")
        self._sources.setdefault(made, set())
        return made

    def _temporary(self, layout: Layout, name: str) -> View:
        low, high = layout.extent
        return View(self._new_buffer("temporary", high - low, name), -low, layout)

    def _read(self, view: View) -> Access:
        return Access(view, self._versions[view.buffer])

    def _write(self, view: View) -> Access:
        self._versions[view.buffer] += 1
        return self._read(view)


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
