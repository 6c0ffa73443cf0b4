"""The last of lowering: how many parts pools need, and what loops read and write."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from graphjit._device_control import (
    Choose,
    Switch,
    Update,
    While,
    every,
    targets,
    used,
)
from graphjit._graph import Graph
from graphjit._layout import contiguous
from graphjit._nodes import Access, View
from graphjit.schedule.packing import rounded


def with_pools(graph: Graph) -> Graph:
    """The graph with pools that have a part more than there are pointers into them.

    Parameters
    ----------
    graph : Graph
        The program, with all its pointers.

    Returns
    -------
    Graph
    """
    return _WithPools(graph).graph()


class _WithPools:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._buffers = list(graph.buffers)
        self._targets = targets(graph.nodes, graph.buffers)
        # What loops hand on, and so hold while others are written.
        self._carried = sorted(
            {p for node in every(graph.nodes) if isinstance(node, While) for p in node.carried}
        )

    def graph(self) -> Graph:
        """The graph."""
        nodes = self._nodes(self._graph.nodes)
        return dataclasses.replace(self._graph, nodes=nodes, buffers=tuple(self._buffers))

    def _nodes(self, nodes: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(self._node, nodes))

    def _node(self, node: Any) -> Any:
        if isinstance(node, Update):
            assignments = tuple(map(self._assignment, node.assignments))
            then = tuple(map(self._assignment, node.then))
            return dataclasses.replace(node, assignments=assignments, then=then)
        if isinstance(node, While):
            reads, writes = self._accesses(node)
            return dataclasses.replace(
                node, nodes=self._nodes(node.nodes), reads=reads, writes=writes
            )
        if isinstance(node, Switch):
            reads, writes = self._accesses(node)
            bodies = tuple(map(self._nodes, node.bodies))
            return dataclasses.replace(node, bodies=bodies, reads=reads, writes=writes)
        return node

    def _assignment(self, each: Any) -> Any:
        if not isinstance(each, Choose):
            return each
        held = tuple(p for p in self._carried if each.pool in self._targets[p])
        pointer = self._buffers[each.target]
        stride = rounded(max(pointer.nbytes, 1))
        count = len(held) + 1
        self._buffers[each.pool] = dataclasses.replace(
            self._buffers[each.pool], nbytes=stride * count
        )
        return Choose(each.target, each.pool, stride, count, held)

    def _accesses(self, region: Any) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """What the nodes of a loop or a branch read and may write."""
        read: dict[int, None] = {}
        written: dict[int, None] = {}
        for node in every([region]):
            if not isinstance(node, (While, Switch)):
                for view in used(node):
                    read.update(dict.fromkeys(sorted(self._targets[view.buffer])))
                for access in node.writes:
                    written.update(dict.fromkeys(sorted(self._targets[access.view.buffer])))
        return tuple(map(self._whole, read)), tuple(map(self._whole, written))

    def _whole(self, buffer: int) -> Access:
        nbytes = self._graph.buffers[buffer].nbytes
        return Access(View(buffer, 0, contiguous((nbytes,), np.dtype(np.uint8))), 0)
