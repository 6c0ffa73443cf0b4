"""The values of a graph that is being lowered: what names stand for, and what is new."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphjit._device_control import Compute, Point
from graphjit._errors import TraceError
from graphjit._graph import Graph
from graphjit._layout import Layout
from graphjit._location import Location
from graphjit._nodes import (
    Access,
    Buffer,
    Constant,
    Moving,
    Number,
    Operand,
    Scalar,
    ScalarRef,
    StateRef,
    View,
    constant,
)
from graphjit._scalars import applied
from graphjit.transforms.device_numbers import conversions, device_form, refusal
from graphjit.transforms.names import Names
from graphjit.transforms.region import Region, State


@dataclass(frozen=True)
class Lowered:
    """An operand of a recorded node that is already what its name stands for."""

    value: Operand


class Values:
    """The buffers, scalars and state of a graph that is being lowered.

    Parameters
    ----------
    graph : Graph
        The graph that is given.
    """

    def __init__(self, graph: Graph) -> None:
        self._given = graph
        self._buffers = list(graph.buffers)
        self._versions = [0] * len(graph.buffers)
        self._scalars: list[Scalar] = []
        self._state: list[type] = []
        self._region = Region(None)
        # Host scalars that were made, by what they are made of.
        self._made: dict[tuple[int, tuple[Any, ...]], ScalarRef | Constant] = {}
        # What pointers may be given.
        self._sources: dict[int, set[int]] = {}

    def _input(self, ref: ScalarRef, names: Names) -> ScalarRef:
        made = self._new_scalar(self._given.scalars[ref.index])
        names.set(ref, made)
        return made

    def _may_be(self, buffer: int) -> set[int]:
        """A buffer, and all that it may be if it is a pointer."""
        found, pending = {buffer}, [buffer]
        while pending:
            new = self._sources.get(pending.pop(), set()) - found
            found |= new
            pending += new
        return found

    # -- what names stand for ---------------------------------------------------------------------

    def _operand(self, operand: Operand | Lowered, names: Names) -> Operand:
        if isinstance(operand, Lowered):
            return operand.value
        if isinstance(operand, View):
            return self._view(operand, names)
        return self._scalar(operand, names)

    def _number(self, operand: Operand | Lowered, names: Names) -> Number:
        found = self._operand(operand, names)
        assert not isinstance(found, View)
        return found

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
        if any(step.length == 0 for step in view.moving):
            # Out of bounds, which is said if it comes to that: there is no element to point to.
            view = self._nowhere(view)

        def point() -> tuple[State, Any]:
            target = self._pointer(high - low, self._buffers[view.buffer].name)
            self._sources[target] = {view.buffer}
            return target, Point(target, view)

        needs: list[State] = [view.buffer]
        needs += [step.index for step in view.moving if isinstance(step.index, StateRef)]
        target = self._region.assigned(view, needs, point)
        assert isinstance(target, int)
        return View(target, -low, view.layout)

    def _nowhere(self, view: View) -> View:
        """Memory for what isn't there."""
        moving = tuple(dataclasses.replace(step, stride=0) for step in view.moving)
        return dataclasses.replace(self._temporary(view.layout, "nothing"), moving=moving)

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
            return self._on_device(scalar, operands)
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

    def _on_device(self, scalar: Scalar, operands: tuple[Number, ...]) -> StateRef:
        """A recorded operation, on what only the device knows."""
        assert scalar.function is not None
        classes = [self._type(operand) for operand in operands]
        reason = refusal(scalar.function, operands, classes)
        if reason:
            raise TraceError(
                f"{scalar.op} can't be computed on the device (at {scalar.location}): {reason}"
            )
        converted: list[Number] = []
        wanted = conversions(scalar.function, classes)
        for operand, class_ in zip(operands, wanted, strict=True):
            if class_ is None:
                converted.append(operand)
            elif isinstance(operand, Constant):
                converted.append(constant(class_(operand.value)))
            else:
                converted.append(self._computed(class_, (operand,), class_, scalar.location))
        function = device_form(scalar.function)
        return self._computed(function, tuple(converted), scalar.type, scalar.location)

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


def _itself(value: Any) -> Any:
    return value
