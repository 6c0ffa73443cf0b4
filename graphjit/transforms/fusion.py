"""Launches over the same grid become one, where each thread reads only what it wrote itself.

That is proved from the addresses in the kernels' IR (`thread_elements`). What such launches hand on
and nobody else needs stays in registers (`graphjit.kernel.compose`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import cast

from graphjit._device_control import Scheduled, Switch, While, every, used
from graphjit._graph import Graph
from graphjit._layout import overlap
from graphjit._nodes import Access, Launch, Operand, View
from graphjit.kernel import frontend
from graphjit.kernel.ir import KernelIR
from graphjit.schedule.aliases import find_aliases
from graphjit.schedule.hazards import find_hazards
from graphjit.transforms.fused_launch import fused_launch, is_kept_in_registers, views_of
from graphjit.transforms.fusion_report import Apart, Fused, FusionReport
from graphjit.transforms.groups import Groups
from graphjit.transforms.seams import hidden_arguments
from graphjit.transforms.thread_elements import ThreadElements

# A kernel has so many parameters at most: CUDA takes 4 KB.
_MAX_WORDS = 480
# Longer ones take compilers long, and registers run out.
_MAX_PARTS = 128


def fuse(
    graph: Graph, overlapping: tuple[tuple[int, ...], ...] = (), contracts: bool = False
) -> tuple[Graph, FusionReport]:
    """The graph with launches fused, and a report.

    Parameters
    ----------
    graph : Graph
        The program, with its control lowered.
    overlapping : tuple of tuple of int
        Groups of input and closure buffers that share memory at this call.
    contracts : bool
        Whether the device's compiler makes one operation of a product and a sum.

    Returns
    -------
    Graph, FusionReport
    """
    if sum(isinstance(node, Launch) for node in every(graph.nodes)) < 2:
        return graph, FusionReport()
    return _Fusion(graph, overlapping, contracts).result()


class _Fusion:
    def __init__(
        self, graph: Graph, overlapping: tuple[tuple[int, ...], ...], contracts: bool
    ) -> None:
        self._graph = graph
        self._contracts = contracts
        self._aliases = find_aliases(graph, overlapping)
        self._fused: list[Fused] = []
        self._apart: list[Apart] = []
        self._elements: dict[int, ThreadElements] = {}
        # How many nodes use each buffer in whatever way; its memory leaves the graph if it is given
        # back.
        self._users: dict[int, int] = {}
        for node in every(graph.nodes):
            for buffer in {view.buffer for view in used(node)}:
                for target in graph.targets[buffer] | {buffer}:
                    self._users[target] = self._users.get(target, 0) + 1
        for output in graph.outputs:
            if isinstance(output, Access):
                self._users[output.view.buffer] = len(graph.nodes) + 1

    def result(self) -> tuple[Graph, FusionReport]:
        temporaries = {b.index for b in self._graph.buffers if b.storage == "temporary"}
        nodes = self._list(cast("tuple[Scheduled, ...]", self._graph.nodes), frozenset(temporaries))
        report = FusionReport(tuple(self._fused), tuple(self._apart))
        return dataclasses.replace(self._graph, nodes=nodes), report

    def _list(
        self, nodes: Iterable[Scheduled], temporaries: frozenset[int]
    ) -> tuple[Scheduled, ...]:
        """A list of nodes with what can be fused in it; `temporaries` hold nothing before it."""
        inner = tuple(map(self._inside, nodes))
        if sum(isinstance(node, Launch) for node in inner) < 2:
            return inner
        groups = Groups(inner, find_hazards(inner, self._aliases))
        for first, second in groups.hazards.edges:
            one, other = groups.of(first), groups.of(second)
            if one == other or not all(isinstance(inner[n], Launch) for n in (first, second)):
                continue
            reason = self._obstacle(inner, groups, one, other)
            if reason:
                self._apart.append(Apart(_named(inner[first]), _named(inner[second]), reason))
            else:
                groups.merge(one, other)
        made = (self._made(inner, group, temporaries) for group in groups.ordered())
        return tuple(itertools.chain.from_iterable(made))

    def _inside(self, node: Scheduled) -> Scheduled:
        if isinstance(node, While):
            return dataclasses.replace(node, nodes=self._list(node.nodes, node.temporaries))
        if isinstance(node, Switch):
            bodies = (self._list(body, node.temporaries) for body in node.bodies)
            return dataclasses.replace(node, bodies=tuple(bodies))
        return node

    def _obstacle(self, nodes: tuple[Scheduled, ...], groups: Groups, one: int, other: int) -> str:
        """Why two groups of launches can't be one; "" if they can."""
        members = groups.members[one] + groups.members[other]
        if len(members) > _MAX_PARTS:
            return f"a kernel is made of {_MAX_PARTS} at most"
        for first in groups.members[one]:
            for second in groups.members[other]:
                earlier, later = nodes[min(first, second)], nodes[max(first, second)]
                assert isinstance(earlier, Launch) and isinstance(later, Launch)
                reason = self._pair_obstacle(earlier, later)
                if reason:
                    return reason
        if groups.would_wait_for_itself(one, other):
            return "what runs between them needs the first, and the second needs it"
        if self._words([nodes[n] for n in members]) > _MAX_WORDS:
            return "together they have too many parameters"
        return ""

    def _pair_obstacle(self, first: Launch, second: Launch) -> str:
        if (first.grid, first.block) != (second.grid, second.block):
            return "they have different grids or blocks"
        for launch in (first, second):
            reason = _unfit(launch)
            if reason:
                return f"{launch.kernel.name}: {reason}"
        if first.kernel.fastmath != second.kernel.fastmath:
            return "one of them is compiled with fastmath"
        for a, mine, writes in _uses(first):
            for b, theirs, written in _uses(second):
                if not (writes or written) or theirs.buffer not in self._aliases[mine.buffer]:
                    continue
                reason = self._meeting(first, second, a, b)
                if reason:
                    return reason
        return ""

    def _meeting(self, first: Launch, second: Launch, a: int, b: int) -> str:
        """Why two uses of memory that may be the same aren't each thread's own."""
        mine, theirs = first.operands[a], second.operands[b]
        assert isinstance(mine, View) and isinstance(theirs, View)
        name = self._graph.buffers[mine.buffer].name
        if mine.buffer != theirs.buffer:
            other = self._graph.buffers[theirs.buffer].name
            return f"{name} and {other} may share memory"
        if mine.moving != theirs.moving:
            return f"they use {name} at places that only the run knows"
        if not overlap(mine.layout, mine.offset, theirs.layout, theirs.offset):
            return ""
        here, there = self._of(first).of(a), self._of(second).of(b)
        if here is None or there is None:
            which = first if here is None else second
            return f"which elements of {name} each thread of {which.kernel.name} uses isn't proved"
        size = mine.layout.dtype.itemsize
        if size != theirs.layout.dtype.itemsize or not here.is_same(there):
            return f"a thread uses elements of {name} that others write"
        if not here.are_distinct(there, size):
            return f"several threads may use the same element of {name}"
        return ""

    def _of(self, launch: Launch) -> ThreadElements:
        found = self._elements.get(id(launch))
        if found is None:
            found = self._elements[id(launch)] = ThreadElements(launch)
        return found

    def _words(self, launches: list[Scheduled]) -> int:
        """How many parameters launches take together, without what only they use."""
        counts: dict[tuple[Operand, object], int] = {}
        users: dict[int, int] = {}
        integers = {0}
        for launch in launches:
            assert isinstance(launch, Launch)
            for operand, leaf in zip(launch.operands, launch.kernel.leaves, strict=True):
                counts[operand, leaf.type] = leaf.count
                if isinstance(operand, View):
                    integers.update(operand.layout.shape, operand.layout.strides)
            for buffer in {o.buffer for o in launch.operands if isinstance(o, View)}:
                users[buffer] = users.get(buffer, 0) + 1
        return len(integers) + sum(
            count
            for (operand, _), count in counts.items()
            if not isinstance(operand, View)
            or self._users[operand.buffer] > users[operand.buffer]
            or self._graph.buffers[operand.buffer].storage != "temporary"
        )

    def _made(
        self, nodes: tuple[Scheduled, ...], members: list[int], temporaries: frozenset[int]
    ) -> Iterator[Scheduled]:
        """What does what the members do: one node, unless that would round differently."""
        if len(members) == 1:
            yield nodes[members[0]]
            return
        launches = [each for each in (nodes[n] for n in members) if isinstance(each, Launch)]
        private = [
            view
            for view in views_of(launches)
            if view.buffer in temporaries and self._is_private(launches, view)
        ]
        exact = self._contracts and not launches[0].kernel.fastmath
        hidden = (frozenset[int](),) * len(launches)
        if exact:
            hidden = hidden_arguments(launches, self._of)
        launch = fused_launch(launches, private, hidden, self._aliases)
        if exact and not _rounds_alike(launches, launch):
            half = len(members) // 2
            first, second = (_named(nodes[members[n]]) for n in (half - 1, half))
            self._apart.append(Apart(first, second, "compiled together they round differently"))
            yield from self._made(nodes, members[:half], temporaries)
            yield from self._made(nodes, members[half:], temporaries)
            return
        yield launch
        self._fused.append(
            Fused(
                tuple(each.kernel.name for each in launches),
                tuple(each.location.short for each in launches),
                tuple(self._graph.buffers[view.buffer].name for view in private),
            )
        )

    def _is_private(self, launches: list[Launch], view: View) -> bool:
        """Whether a view's memory is used by these launches only, each thread its own element."""
        if view.moving or not view.layout.size or not is_kept_in_registers(launches, view):
            return False
        users = 0
        for launch in launches:
            users += any(each.buffer == view.buffer for each in used(launch))
            for leaf, operand in enumerate(launch.operands):
                if isinstance(operand, View) and operand.buffer == view.buffer:
                    if operand != view or self._of(launch).of(leaf) is None:
                        return False
        first = next(each for each in launches if view in each.operands)
        reads = {access.view for access in first.reads}
        # What it reads before anything was written is whatever the memory held.
        return users == self._users[view.buffer] and view not in reads


def _uses(launch: Launch) -> Iterator[tuple[int, View, bool]]:
    """The arguments that a launch reads or writes: place, view, and whether it writes."""
    effects = launch.kernel.effects
    for leaf, (described, operand) in enumerate(
        zip(launch.kernel.leaves, launch.operands, strict=True)
    ):
        if described.path in effects.reads | effects.writes:
            assert isinstance(operand, View)
            yield leaf, operand, described.path in effects.writes


def _unfit(launch: Launch) -> str:
    """Why a launch can't be a part of another one; "" if it can."""
    kernel = launch.kernel
    if kernel.elements.obstacle:
        return kernel.elements.obstacle
    if launch.shared_bytes:
        return "it has dynamic shared memory"
    return _unfit_kernel(kernel)


def _unfit_kernel(kernel: KernelIR) -> str:
    effects = kernel.effects
    if effects.prints or effects.traps or effects.captured:
        return "it prints, stops the device, or closes over arrays"
    if kernel.cooperative or kernel.linked:
        return "it links other code, or waits for the whole grid"
    if len(kernel.leaves) != len(kernel.argtypes):
        return "it takes tuples"
    if not frontend.is_plain(kernel.dispatcher):
        return "it has explicit signatures, or options of its own"
    return ""


def _rounds_alike(launches: list[Launch], fused: Launch) -> bool:
    """Whether as many sums are contracted with products as in the single launches."""
    apart = sum(launch.kernel.elements.contractions for launch in launches)
    return fused.kernel.elements.contractions == apart


def _named(node: Scheduled) -> str:
    assert isinstance(node, Launch)
    return f"{node.kernel.name} ({node.location.short})"
