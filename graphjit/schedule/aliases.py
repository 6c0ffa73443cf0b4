"""Which buffers may share memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphjit._device_control import Choose, Switch, Update, While
from graphjit._graph import Graph


def find_aliases(
    graph: Graph, overlapping: tuple[tuple[int, ...], ...]
) -> dict[int, frozenset[int]]:
    """For each buffer of a graph, the buffers that it may share memory with when nodes run.

    Parameters
    ----------
    graph : Graph
        The program.
    overlapping : tuple of tuple of int
        Groups of input and closure buffers that share memory at this call.

    Returns
    -------
    dict
        Sets that the buffer itself is in.
    """
    groups = {member: group[0] for group in overlapping for member in group}
    reaches = {
        buffer: {groups.get(target, target) for target in targets}
        for buffer, targets in graph.targets.items()
    }
    members: dict[int, set[int]] = {}
    for buffer, found in reaches.items():
        for group in found:
            members.setdefault(group, set()).add(buffer)
    aliases = {
        buffer: {buffer}.union(*(members[group] for group in found))
        for buffer, found in reaches.items()
    }
    for one, other in _apart(graph.nodes, ()):
        aliases[one].discard(other)
        aliases[other].discard(one)
    return {buffer: frozenset(found) for buffer, found in aliases.items()}


def _apart(nodes: Iterable[Any], carried: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Pointers that never meet: the temporaries of an iteration, and what loops around carry."""
    for node in nodes:
        if isinstance(node, While):
            around = (*carried, *node.carried)
            last = node.nodes[-1]
            assert isinstance(last, Update)
            for each in last.then:
                if isinstance(each, Choose):
                    yield from ((each.target, pointer) for pointer in around)
            yield from _apart(node.nodes, around)
        elif isinstance(node, Switch):
            for body in node.bodies:
                yield from _apart(body, carried)
