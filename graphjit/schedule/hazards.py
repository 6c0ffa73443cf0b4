"""The hazards of a graph: which nodes must wait for which, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphjit._graph import Graph, View
from graphjit._layout import overlap


@dataclass(frozen=True)
class Hazards:
    """The order that a graph's reads and writes demand.

    Parameters
    ----------
    edges : tuple of (int, int)
        Pairs of node indices, transitively reduced: the second waits for the first.
    ancestors : tuple of int
        For each node, a bit set of the nodes that come before it in every order.
    """

    edges: tuple[tuple[int, int], ...]
    ancestors: tuple[int, ...]


@dataclass(frozen=True)
class _Use:
    node: int
    view: View
    writes: bool


def find_hazards(graph: Graph, groups: Sequence[int]) -> Hazards:
    """Every read after write, write after read and write after write on overlapping memory.

    Parameters
    ----------
    graph : Graph
        The program.
    groups : sequence of int
        For each buffer, the group of buffers it may share memory with at this call. Different
        buffers of one group conflict wherever they are used.

    Returns
    -------
    Hazards
    """
    edges: list[tuple[int, int]] = []
    ancestors: list[int] = []
    live: dict[int, list[_Use]] = {}
    for index, node in enumerate(graph.nodes):
        uses = [_Use(index, access.view, False) for access in node.reads]
        uses += [_Use(index, access.view, True) for access in node.writes]
        before: set[int] = set()
        for use in uses:
            for earlier in live.get(groups[use.view.buffer], ()):
                if (use.writes or earlier.writes) and _conflict(use.view, earlier.view):
                    before.add(earlier.node)
        known = 0
        # Latest first: whatever lies behind an edge already taken needs none of its own.
        for predecessor in sorted(before, reverse=True):
            if not known >> predecessor & 1:
                edges.append((predecessor, index))
                known |= ancestors[predecessor] | 1 << predecessor
        ancestors.append(known)
        for use in uses:
            known_uses = live.setdefault(groups[use.view.buffer], [])
            if use.writes:
                # Whatever conflicts with an earlier use that lies inside this write conflicts with
                # the write too, which is ordered after it: the earlier use can be forgotten.
                known_uses[:] = [
                    earlier
                    for earlier in known_uses
                    if earlier.node == index or not _covers(use.view, earlier.view)
                ]
            known_uses.append(use)
    return Hazards(tuple(sorted(edges)), tuple(ancestors))


def _conflict(a: View, b: View) -> bool:
    if a.buffer != b.buffer:
        return a.layout.size > 0 and b.layout.size > 0
    if a == b:
        return a.layout.size > 0
    return overlap(a.layout, a.offset, b.layout, b.offset)


def _covers(outer: View, inner: View) -> bool:
    """Whether `outer` contains every byte of `inner`, where that is plain to see."""
    if outer.buffer != inner.buffer:
        return False
    if outer == inner:
        return True
    if not outer.layout.is_contiguous:
        return False
    low, high = outer.layout.extent
    inner_low, inner_high = inner.layout.extent
    return outer.offset + low <= inner.offset + inner_low and (
        inner.offset + inner_high <= outer.offset + high
    )
