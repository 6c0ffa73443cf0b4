"""The hazards of a list of nodes: which must wait for which, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphjit._device_control import HostCall, Scheduled, Switch, Update, While
from graphjit._layout import overlap
from graphjit._nodes import Launch, View


@dataclass(frozen=True)
class Hazards:
    """The order that the reads and writes of nodes demand.

    Parameters
    ----------
    edges : tuple of (int, int)
        Pairs of node indices, transitively reduced: the second waits for the first.
    ancestors : tuple of int
        For each node, a bit set of the nodes that come before it in every order.
    """

    edges: tuple[tuple[int, int], ...]
    ancestors: tuple[int, ...]

    def with_edges(self, edges: Iterable[tuple[int, int]]) -> Hazards:
        """These and more edges, each from an earlier node to a later one; reduced."""
        before: list[set[int]] = [set() for _ in self.ancestors]
        for first, second in (*self.edges, *edges):
            before[second].add(first)
        ancestors: list[int] = []
        kept: list[tuple[int, int]] = []
        for node, predecessors in enumerate(before):
            reduced, known = _reduced(predecessors, ancestors)
            kept += [(predecessor, node) for predecessor in reduced]
            ancestors.append(known)
        return Hazards(tuple(sorted(kept)), tuple(ancestors))


@dataclass(frozen=True)
class _Use:
    node: int
    view: View
    writes: bool
    start: int
    end: int


def find_hazards(nodes: Iterable[Scheduled], aliases: Mapping[int, Iterable[int]]) -> Hazards:
    """Every read after write, write after read and write after write on overlapping memory.

    Launches that print are ordered too, among themselves. What changes state, or decides by it,
    waits for all before it, and all after it wait.

    Parameters
    ----------
    nodes : iterable of node
        The nodes.
    aliases : mapping of int to iterable of int
        For each buffer, the buffers it may share memory with, itself among them. Different ones
        conflict wherever they are used.

    Returns
    -------
    Hazards
    """
    edges: list[tuple[int, int]] = []
    ancestors: list[int] = []
    # What may conflict with uses to come: apart, since nothing must wait between two reads.
    written: dict[int, list[_Use]] = {}
    read: dict[int, list[_Use]] = {}
    printed: int | None = None
    barrier = -1
    for index, node in enumerate(nodes):
        uses: list[_Use] = []
        before: set[int] = set()
        if isinstance(node, (Update, While, Switch, HostCall)):
            before.update(range(max(barrier, 0), index))
            barrier = index
            written.clear()
            read.clear()
        else:
            uses = [_use(index, access.view, False) for access in node.reads]
            uses += [_use(index, access.view, True) for access in node.writes]
            if barrier >= 0:
                before.add(barrier)
        if isinstance(node, Launch) and node.kernel.effects.prints:
            if printed is not None:
                before.add(printed)
            printed = index
        for use in uses:
            buffer, start, end = use.view.buffer, use.start, use.end
            for live in (written, read) if use.writes else (written,):
                for other in aliases[buffer]:
                    for earlier in live.get(other, ()):
                        # The cheap test first: thousands of slices of one array are common.
                        if buffer == other and (end <= earlier.start or earlier.end <= start):
                            continue
                        if _conflict(use.view, earlier.view):
                            before.add(earlier.node)
        reduced, known = _reduced(before, ancestors)
        edges += [(predecessor, index) for predecessor in reduced]
        ancestors.append(known)
        for use in uses:
            buffer = use.view.buffer
            if use.writes:
                # Whatever conflicts with an earlier use that lies inside this write conflicts with
                # the write too, which is ordered after it: the earlier use can be forgotten.
                for live in (written, read):
                    live[buffer] = [
                        earlier
                        for earlier in live.get(buffer, ())
                        if earlier.node == index or not _covers(use, earlier)
                    ]
            (written if use.writes else read).setdefault(buffer, []).append(use)
    return Hazards(tuple(sorted(edges)), tuple(ancestors))


def _reduced(before: set[int], ancestors: list[int]) -> tuple[list[int], int]:
    """Those of a node's predecessors that need an edge, and the bit set of its ancestors."""
    known, needed = 0, []
    # Latest first: whatever lies behind an edge already taken needs none of its own.
    for predecessor in sorted(before, reverse=True):
        if not known >> predecessor & 1:
            needed.append(predecessor)
            known |= ancestors[predecessor] | 1 << predecessor
    return needed, known


def _conflict(a: View, b: View) -> bool:
    if a.buffer != b.buffer:
        return a.layout.size > 0 and b.layout.size > 0
    if a == b:
        return a.layout.size > 0
    return overlap(a.layout, a.offset, b.layout, b.offset)


def _use(node: int, view: View, writes: bool) -> _Use:
    low, high = view.layout.extent
    return _Use(node, view, writes, view.offset + low, view.offset + high)


def _covers(outer: _Use, inner: _Use) -> bool:
    """Whether `outer` contains every byte of `inner`, where that is plain to see."""
    if inner.start < outer.start or outer.end < inner.end:
        return False
    return outer.view == inner.view or outer.view.layout.is_contiguous
