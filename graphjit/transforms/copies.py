"""Copies of what stays as it is are left out: their readers read the original."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from graphjit._device_control import Scheduled, every, used
from graphjit._graph import Graph
from graphjit._nodes import Access, Copy, Launch, Operand, View, Work
from graphjit.transforms.removed import Removed

_REASON = "its readers read the original, which stays as it is meanwhile"


def without_copies(graph: Graph) -> tuple[Graph, tuple[Removed, ...]]:
    """The graph without copies whose readers may as well read the original.

    That is a copy to the whole of a temporary that nothing else writes and that isn't a result, of
    the same layout, where nothing writes the original up to the temporary's last use. Arguments
    and arrays closed over may share memory, so to write one is to write all. What loops and
    branches use is left as it is.

    Parameters
    ----------
    graph : Graph
        The program, with its control lowered.

    Returns
    -------
    Graph, tuple of Removed
        What is left, and what isn't, in order.
    """
    found = _Copies(graph)
    nodes: list[Scheduled] = []
    removed: list[Removed] = []
    for place, node in enumerate(cast("tuple[Scheduled, ...]", graph.nodes)):
        now = found.read(node)
        if isinstance(now, Copy) and found.is_needless(place, now):
            found.replace(now)
            removed.append(Removed(graph.describe(node), _REASON))
        else:
            nodes.append(now)
    if not removed:
        return graph, ()
    return dataclasses.replace(graph, nodes=tuple(nodes)), tuple(removed)


class _Copies:
    """Which copies are needless, as a graph is gone through."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        # The source of each copy that was left out, by the temporary that it was to.
        self._sources: dict[int, Access] = {}
        self._fixed = {o.view.buffer for o in graph.outputs if isinstance(o, Access)}
        self._outside = {b.index for b in graph.buffers if b.storage in ("input", "closure")}
        self._last: dict[int, int] = {}
        self._writers: dict[int, list[int]] = {}
        for place, node in enumerate(graph.nodes):
            for each in every((node,)):
                views = list(used(each))
                # Of a loop or branch that also means the nodes in it.
                if not isinstance(node, Work) or any(view.moving for view in views):
                    self._fixed.update(view.buffer for view in views)
                for view in views:
                    for target in graph.targets[view.buffer]:
                        self._last[target] = place
                for target in self._written(each):
                    self._writers.setdefault(target, []).append(place)

    def _written(self, node: Any) -> set[int]:
        """The buffers that a node may write."""
        found: set[int] = set()
        for access in node.writes:
            found |= self._graph.targets[access.view.buffer]
        return found | self._outside if found & self._outside else found

    def is_needless(self, place: int, copy: Copy) -> bool:
        """Whether readers of the target may read the source instead."""
        source, target = copy.source.view, copy.target.view
        buffer = target.buffer
        if buffer in self._fixed or not self._is_plain(source) or not self._is_plain(target):
            return False
        if source.layout != target.layout or not source.layout.is_contiguous:
            return False
        if target.offset or target.layout.nbytes != self._graph.buffers[buffer].nbytes:
            return False
        if self._graph.buffers[buffer].storage != "temporary":
            return False
        if self._writers[buffer] != [place]:
            return False
        last = self._last[buffer]
        return not any(place < n <= last for n in self._writers.get(source.buffer, ()))

    def _is_plain(self, view: View) -> bool:
        """Whether a view is of one buffer, at a place that the trace knows."""
        return not view.moving and self._graph.targets[view.buffer] == {view.buffer}

    def replace(self, copy: Copy) -> None:
        """Say that a copy is left out."""
        self._sources[copy.target.view.buffer] = copy.source

    def read(self, node: Scheduled) -> Scheduled:
        """A node that reads the originals of copies that were left out."""
        if not self._sources or not isinstance(node, Work):
            return node
        if not any(view.buffer in self._sources for view in used(node)):
            return node
        if isinstance(node, Launch):
            return dataclasses.replace(
                node,
                operands=tuple(map(self._operand, node.operands)),
                reads=tuple(dict.fromkeys(map(self._access, node.reads))),
            )
        assert isinstance(node, Copy)
        return dataclasses.replace(node, source=self._access(node.source))

    def _operand(self, operand: Operand) -> Operand:
        return self._view(operand) if isinstance(operand, View) else operand

    def _access(self, access: Access) -> Access:
        source = self._sources.get(access.view.buffer)
        return access if source is None else Access(self._view(access.view), source.version)

    def _view(self, view: View) -> View:
        source = self._sources.get(view.buffer)
        return view if source is None else source.view.part(view.layout, view.offset)
