"""The Schedule: how a graph runs, on whatever backend."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from graphjit._graph import Graph
from graphjit._layout import Layout
from graphjit._nodes import Constant, Fill, Launch, Loop, ScalarRef, View, Work
from graphjit._scalars import element
from graphjit.kernel import numba_types
from graphjit.kernel.packing import (
    Address,
    ParamImage,
    pack_launch,
    scalar_codes,
)
from graphjit.schedule.hazards import Hazards, find_hazards
from graphjit.schedule.memory import Arena, plan_arena
from graphjit.schedule.scalar_words import ScalarSlot


@dataclass(frozen=True)
class Schedule:
    """How a graph runs: order, edges and memory.

    Every address and scalar that may change from call to call has an 8-byte slot: one for each
    buffer of `externals`, then one for the arena, then the scalars'.

    Parameters
    ----------
    graph : Graph
        The program, without loops; its nodes are in an order that respects the edges.
    hazards : Hazards
        What must wait for what.
    arena : Arena
        Where temporaries are.
    externals : tuple of int
        Buffers that the caller provides at each call: inputs, closures, results.
    scalars : tuple of ScalarSlot
        Dynamic scalars, with their slots.
    overlapping : tuple of tuple of int
        Groups of input and closure buffers that share memory.
    """

    graph: Graph
    hazards: Hazards
    arena: Arena
    externals: tuple[int, ...]
    scalars: tuple[ScalarSlot, ...]
    overlapping: tuple[tuple[int, ...], ...]

    @functools.cached_property
    def nodes(self) -> tuple[Work, ...]:
        """The pieces of work, in an order that respects the edges."""
        assert not any(isinstance(node, Loop) for node in self.graph.nodes)
        return cast("tuple[Work, ...]", self.graph.nodes)

    @functools.cached_property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.externals) + 1 + sum(len(scalar_codes(s.type)) for s in self.scalars)

    @functools.cached_property
    def _places(self) -> dict[int, Address]:
        places = {buffer: Address(slot) for slot, buffer in enumerate(self.externals)}
        arena = len(self.externals)
        places.update({buffer: Address(arena, offset) for buffer, offset in self.arena.offsets})
        return places

    def address(self, view: View) -> Address:
        """Where the first element of a view is."""
        # A temporary that nothing reads or writes has no place; any address serves.
        place = self._places.get(view.buffer, Address(len(self.externals)))
        return Address(place.slot, place.offset + view.offset)

    def aliased(self, a: int, b: int) -> bool:
        """Whether two buffers may share memory at this call."""
        return any(a in group and b in group for group in self.overlapping)

    def slot(self, ref: ScalarRef, type_: Any, dtype: Any = None) -> int:
        """First slot of a scalar converted to a Numba type, or as an element that is filled in."""
        wanted = (ref, type_, dtype)
        return next(s.first for s in self.scalars if (s.ref, s.type, s.dtype) == wanted)

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
        waits: dict[int, list[int]] = {}
        for before, after in self.hazards.edges:
            waits.setdefault(after, []).append(before)
        lines = [f"schedule of {self.graph.name}: arena of {self.arena.nbytes} bytes"]
        for index, node in enumerate(self.nodes):
            order = f" after {', '.join(map(str, waits[index]))}" if index in waits else ""
            lines.append(f"  {index}{order}: {self.graph.describe(node)}")
        return "\n".join(lines)


def schedule(graph: Graph, overlapping: tuple[tuple[int, ...], ...] = ()) -> Schedule:
    """Work out how a graph runs.

    Parameters
    ----------
    graph : Graph
        The program, without loops.
    overlapping : tuple of tuple of int
        Groups of input and closure buffers that share memory at this call.

    Returns
    -------
    Schedule
    """
    groups = list(range(len(graph.buffers)))
    for group in overlapping:
        for buffer in group:
            groups[buffer] = group[0]
    hazards = find_hazards(graph, groups)
    given = tuple(b.index for b in graph.buffers if b.storage in ("input", "closure"))
    externals = given + graph.results
    first = len(externals) + 1
    scalars: list[ScalarSlot] = []
    for ref, type_, dtype in _dynamic_scalars(graph):
        scalars.append(ScalarSlot(ref, type_, dtype, first))
        first += len(scalar_codes(type_))
    return Schedule(
        graph, hazards, plan_arena(graph, hazards), externals, tuple(scalars), overlapping
    )


def _dynamic_scalars(graph: Graph) -> dict[tuple[ScalarRef, Any, Any], None]:
    found: dict[tuple[ScalarRef, Any, Any], None] = {}
    for node in graph.nodes:
        if isinstance(node, Launch):
            for leaf, operand in zip(node.kernel.leaves, node.operands, strict=True):
                if isinstance(operand, ScalarRef):
                    found[operand, leaf.type, None] = None
        elif isinstance(node, Fill) and isinstance(node.value, ScalarRef):
            dtype = node.target.view.layout.dtype
            found[node.value, numba_types.element_type(dtype), dtype] = None
    return found
