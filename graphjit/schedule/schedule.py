"""The Schedule: how a graph runs, on whatever backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from graphjit._cached_property import cached_property
from graphjit._device_control import Compute, HostCall, Move, Point, Scheduled, Update, every
from graphjit._graph import Graph
from graphjit._layout import Layout
from graphjit._nodes import Constant, Fill, Launch, Moving, Number, ScalarRef, StateRef, View
from graphjit._scalars import element
from graphjit.kernel import numba_types
from graphjit.kernel.packing import (
    Address,
    ParamImage,
    pack_launch,
    scalar_codes,
)
from graphjit.schedule.aliases import find_aliases
from graphjit.schedule.hazards import Hazards
from graphjit.schedule.memory import Arena, plan_arena
from graphjit.schedule.order import Order, find_order
from graphjit.schedule.scalar_words import ScalarSlot

REUSE_FROM = 1 << 24
"""Temporaries of 16 MiB: what reads or writes as much fills any device by itself."""


@dataclass(frozen=True)
class Schedule:
    """How a graph runs: order, edges and memory.

    Every address and scalar that may change from call to call has an 8-byte slot: one for each
    buffer of `externals`, then one for the arena, then the scalars'. What only the device knows has
    slots after those: one for each pointer, then the state's, then two for an index that is out of
    bounds.

    Parameters
    ----------
    graph : Graph
        The program, with its control lowered.
    order : Order
        Its nodes, and what must wait for what.
    arena : Arena
        Where temporaries are.
    externals : tuple of int
        Buffers that the caller provides at each call: inputs, closures, results.
    scalars : tuple of ScalarSlot
        Dynamic scalars, with their slots.
    pointers : tuple of int
        Buffers that the device places, in the order of their slots.
    state : tuple of ScalarSlot
        Numbers that the device computes, with their slots.
    overlapping : tuple of tuple of int
        Groups of input and closure buffers that share memory.
    """

    graph: Graph
    order: Order
    arena: Arena
    externals: tuple[int, ...]
    scalars: tuple[ScalarSlot, ...]
    pointers: tuple[int, ...]
    state: tuple[ScalarSlot, ...]
    overlapping: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> tuple[Scheduled, ...]:
        """The nodes, in an order that respects the edges."""
        return self.order.nodes

    @property
    def hazards(self) -> Hazards:
        """What must wait for what."""
        return self.order.hazards

    @cached_property
    def slots(self) -> int:
        """Number of slots that a call fills, and the arena's."""
        return len(self.externals) + 1 + sum(len(scalar_codes(s.type)) for s in self.scalars)

    @cached_property
    def words(self) -> int:
        """Number of all slots."""
        if not self.has_state:
            return self.slots
        return self.failure + 2

    @cached_property
    def failure(self) -> int:
        """The slot that says which of `indices` is out of bounds, from 1 on; then its value."""
        numbers = sum(len(scalar_codes(each.type)) for each in self.state)
        return self.slots + len(self.pointers) + numbers

    @property
    def has_state(self) -> bool:
        """Whether the device decides anything, or the host is called."""
        return bool(self.pointers or self.state) or self.has_calls

    @cached_property
    def has_calls(self) -> bool:
        """Whether the host is called."""
        return any(isinstance(node, HostCall) for node in every(self.graph.nodes))

    @cached_property
    def indices(self) -> tuple[Moving, ...]:
        """The indices that only the device knows."""
        return tuple(
            step
            for node in every(self.graph.nodes)
            if isinstance(node, Update)
            for each in node.all
            if isinstance(each, Point)
            for step in each.view.moving
        )

    def index_error(self, place: int, index: int) -> IndexError:
        """The error for what the slots from `failure` on hold."""
        step = self.indices[place - 1]
        return IndexError(
            f"index {index} was out of bounds for an axis of {step.length} elements in "
            f"{self.graph.name} (at {step.location})"
        )

    @cached_property
    def _places(self) -> dict[int, Address]:
        places = {buffer: Address(slot) for slot, buffer in enumerate(self.externals)}
        arena = len(self.externals)
        places.update({buffer: Address(arena, offset) for buffer, offset in self.arena.offsets})
        places.update({p: Address(self.slots + n) for n, p in enumerate(self.pointers)})
        return places

    def address(self, view: View) -> Address:
        """Where the first element of a view is."""
        # A temporary that nothing reads or writes has no place; any address serves.
        place = self._places.get(view.buffer, Address(len(self.externals)))
        return Address(place.slot, place.offset + view.offset)

    @cached_property
    def _aliases(self) -> dict[int, frozenset[int]]:
        return find_aliases(self.graph, self.overlapping)

    def aliased(self, a: int, b: int) -> bool:
        """Whether two buffers may share memory at this call."""
        return b in self._aliases[a]

    @cached_property
    def _first_slots(self) -> dict[tuple[Any, Any, Any], int]:
        return {(s.ref, s.type, s.dtype): s.first for s in (*self.scalars, *self.state)}

    def slot(self, ref: ScalarRef | StateRef, type_: Any, dtype: Any = None) -> int:
        """First slot of a scalar converted to a Numba type, or as an element that is filled in."""
        return self._first_slots[ref, type_, dtype]

    def slots_of(self, ref: StateRef) -> Iterator[ScalarSlot]:
        """Where a number that the device computes is, as each type that it is used as."""
        return (each for each in self.state if each.ref == ref)

    def copyable_inputs(self) -> Iterator[tuple[int, Layout, bool]]:
        """Slot and layout of each argument that shares no memory with others, and if it's written.

        Those may be copied elsewhere for a replay, and back.
        """
        layouts = {v.buffer: v.layout for v in self.graph.inputs if isinstance(v, View)}
        aliased = {buffer for group in self.overlapping for buffer in group}
        for slot, buffer in enumerate(self.externals):
            if buffer in layouts and buffer not in aliased and layouts[buffer].size:
                yield slot, layouts[buffer], buffer in self.graph.mutated

    def image(self, launch: Launch) -> ParamImage:
        """The parameters of one of the graph's launches."""
        return pack_launch(launch.kernel, launch.operands, self.address, self.slot)

    def fill_value(self, node: Fill) -> bytes | tuple[int, ...]:
        """The element that a fill writes, or the slots that hold its parts."""
        view = node.target.view
        if isinstance(node.value, Constant):
            return element(node.value.value, view.layout.dtype).tobytes()
        type_ = numba_types.element_type(view.layout.dtype)
        first = self.slot(node.value, type_, view.layout.dtype)
        return tuple(range(first, first + len(scalar_codes(type_))))

    def __str__(self) -> str:
        lines = [f"schedule of {self.graph.name}: arena of {self.arena.nbytes} bytes"]
        return "\n".join([*lines, *self._lines(self.order, "  ")])

    def _lines(self, order: Order, margin: str) -> Iterator[str]:
        waits: dict[int, list[int]] = {}
        for before, after in order.hazards.edges:
            waits.setdefault(after, []).append(before)
        for index, node in enumerate(order.nodes):
            behind = f" after {', '.join(map(str, waits[index]))}" if index in waits else ""
            yield f"{margin}{index}{behind}: {self.graph.describe(node)}"
            for number, body in enumerate(order.bodies[index]):
                if len(order.bodies[index]) > 1:
                    yield f"{margin}  {number}:"
                yield from self._lines(body, f"{margin}    ")


def schedule(
    graph: Graph,
    overlapping: tuple[tuple[int, ...], ...] = (),
    reuse_from: int = REUSE_FROM,
) -> Schedule:
    """Work out how a graph runs.

    Parameters
    ----------
    graph : Graph
        The program, with its control lowered.
    overlapping : tuple of tuple of int
        Groups of input and closure buffers that share memory at this call.
    reuse_from : int
        Temporaries of at least so many bytes wait for each other's memory.

    Returns
    -------
    Schedule
    """
    order = find_order(cast("tuple[Scheduled, ...]", graph.nodes), find_aliases(graph, overlapping))
    given = tuple(b.index for b in graph.buffers if b.storage in ("input", "closure"))
    externals = given + graph.results
    pointers = tuple(b.index for b in graph.buffers if b.storage == "pointer")
    wanted = _numbers(graph)
    scalars, end = _slots(wanted, ScalarRef, len(externals) + 1)
    state, _ = _slots(wanted, StateRef, end + len(pointers))
    arena, order = plan_arena(graph, order, reuse_from)
    return Schedule(graph, order, arena, externals, scalars, pointers, state, overlapping)


def _slots(
    wanted: dict[tuple[Number, Any, Any], None], kind: type, first: int
) -> tuple[tuple[ScalarSlot, ...], int]:
    """Slots for the numbers of one kind, from `first` on, and the next slot after them."""
    found: list[ScalarSlot] = []
    for ref, type_, dtype in wanted:
        if isinstance(ref, kind):
            found.append(ScalarSlot(ref, type_, dtype, first))  # type: ignore[arg-type]
            first += len(scalar_codes(type_))
    return tuple(found), first


def _numbers(graph: Graph) -> dict[tuple[Number, Any, Any], None]:
    """The dynamic numbers that nodes use, with the types that they are used as."""
    found: dict[tuple[Number, Any, Any], None] = {}

    def plain(number: Number) -> None:
        if isinstance(number, ScalarRef):
            found[number, numba_types.class_type(graph.scalars[number.index].type), None] = None

    for node in every(graph.nodes):
        if isinstance(node, Launch):
            for leaf, operand in zip(node.kernel.leaves, node.operands, strict=True):
                if isinstance(operand, (ScalarRef, StateRef)):
                    found[operand, leaf.type, None] = None
        elif isinstance(node, Fill) and not isinstance(node.value, Constant):
            dtype = node.target.view.layout.dtype
            found[node.value, numba_types.element_type(dtype), dtype] = None
        elif isinstance(node, Update):
            for each in node.all:
                if isinstance(each, Compute):
                    for operand in each.operands:
                        plain(operand)
                elif isinstance(each, Move):
                    for _, value in each.numbers:
                        plain(value)
                elif isinstance(each, Point):
                    for step in each.view.moving:
                        plain(step.index)
        elif isinstance(node, HostCall):
            for given in node.values:
                if not isinstance(given, View):
                    plain(given)
    for index, type_ in enumerate(graph.state):
        found[StateRef(index), numba_types.class_type(type_), None] = None
    return found
