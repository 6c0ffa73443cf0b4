"""Loops that the device runs: it counts or tests, and hands on."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from graphjit._control import Body, Loop
from graphjit._device_control import Choose, Move, While, used
from graphjit._graph import Graph
from graphjit._location import Location
from graphjit._nodes import Constant, Number, Operand, ScalarRef, StateRef, View, constant
from graphjit.transforms.bodies import calling_always, has_calls, is_flat, weight, without_calls
from graphjit.transforms.names import Names
from graphjit.transforms.region import Region, State
from graphjit.transforms.values import Lowered, Values

# So many nodes of several iterations are one iteration of the device's.
_CHUNK_NODES = 128
# So many numbers and places at most are computed for that in one update, which Numba compiles.
_CHUNK_NUMBERS = 16
# Iterations at a time where only the run knows how many there are.
_CHUNK = 8


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


class DeviceLoops(Values):
    """Values, and what makes loops that the device runs of them.

    Parameters
    ----------
    graph : Graph
        The graph that is given.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        # Buffers that stand for a temporary of a body in some iteration.
        self._instances: dict[int, list[int]] = {}
        # Buffers with parts for temporaries that leave an iteration.
        self._pools: set[int] = set()

    def _add(self, nodes: Iterable[Any], names: Names) -> None:
        """Add nodes with what their names stand for."""
        raise NotImplementedError

    def _add_loop(self, loop: Loop, names: Names) -> None:
        """Add a loop, unrolled or not."""
        raise NotImplementedError

    def _iterate(
        self, loop: Loop, names: Names, index: Number, carried: list[Operand]
    ) -> list[Operand]:
        """Add the nodes of one iteration; what the next one is given."""
        raise NotImplementedError

    def _instantiate(self, body: Body, names: Names) -> None:
        """Choose the temporaries of a body."""
        raise NotImplementedError

    def _add_device_loop(self, loop: Loop, names: Names, lower: Number, upper: Number) -> None:
        """Let the device count, or test, and hand on."""
        chunk, counted = 1, isinstance(lower, Constant) and isinstance(upper, Constant)
        if loop.condition is None and is_flat(loop.body):
            numbers = self._numbers(loop, names)
            chunk = max(1, _CHUNK_NODES // max(1, weight(loop.body)))
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
        quiet = dataclasses.replace(loop, body=without_calls(loop.body))
        calling = dataclasses.replace(loop, body=calling_always(loop.body))
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
        if run.loop.condition is None or has_calls(run.loop.body):
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
