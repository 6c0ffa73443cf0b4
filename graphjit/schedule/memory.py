"""One arena for all temporaries that stay inside a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphjit._device_control import Scheduled, Switch, While, every, used
from graphjit._graph import Graph
from graphjit.schedule.hazards import Hazards
from graphjit.schedule.order import Order
from graphjit.schedule.packing import Packing, heaviest, rounded


@dataclass(frozen=True)
class Arena:
    """Where the temporaries are.

    Parameters
    ----------
    offsets : tuple of (int, int)
        Buffer index and byte offset of each temporary in the arena.
    nbytes : int
        Size of the arena.
    """

    offsets: tuple[tuple[int, int], ...]
    nbytes: int


def plan_arena(graph: Graph, order: Order, reuse_from: int) -> tuple[Arena, Order]:
    """Give each temporary an offset, reusing memory where the hazards already order its users.

    What only the body of a loop or a branch uses gets memory with the other temporaries of that
    body, in a part of the arena that the loop or branch uses as a whole.

    Parameters
    ----------
    graph : Graph
        The program.
    order : Order
        Its order.
    reuse_from : int
        Temporaries of at least so many bytes take over each other's memory also where only the
        program orders their users, which then wait for each other.

    Returns
    -------
    Arena, Order
        And the order with the edges that this adds.
    """
    plan = _Plan(graph, Packing(reuse_from).pack)
    order, nbytes = plan.place(order, plan.used(order.nodes))
    return Arena(tuple((b, offset) for b, offset in plan.offsets.items()), nbytes), order


def least_bytes(graph: Graph, order: Order) -> int:
    """How large an arena must be, given an order: the heaviest temporaries live together.

    Parameters
    ----------
    graph : Graph
        The program.
    order : Order
        Its order.

    Returns
    -------
    int
    """
    plan = _Plan(graph, heaviest)
    return plan.place(order, plan.used(order.nodes))[1]


def temporary_bytes(graph: Graph, order: Order) -> int:
    """How large the arena would be if no memory were reused."""
    plan = _Plan(graph, Packing(0).pack)
    return sum(rounded(graph.buffers[buffer].nbytes) for buffer in plan.used(order.nodes))


# From the users and sizes of buffers and the hazards: offsets, bytes in all, edges that are added.
Pack = Callable[
    [dict[int, list[int]], dict[int, int], Hazards],
    tuple[dict[int, int], int, list[tuple[int, int]]],
]


class _Plan:
    """Offsets for the temporaries of a graph, loop by loop.

    Parameters
    ----------
    graph : Graph
        The program.
    pack : Pack
        What gives offsets to the temporaries of one list of nodes.
    """

    def __init__(self, graph: Graph, pack: Pack) -> None:
        self._graph = graph
        self._pack = pack
        self._results = set(graph.results)
        self.offsets: dict[int, int] = {}

    def used(self, nodes: Iterable[Scheduled]) -> dict[int, None]:
        """The temporaries that nodes or those in them use, in order; also through pointers."""
        found: dict[int, None] = {}
        for node in every(nodes):
            # A launch may name a buffer that it neither reads nor writes (its shape).
            views = [access.view for access in (*node.reads, *node.writes)]
            if not isinstance(node, (While, Switch)):
                views += used(node) if self._graph.state else []
                for view in views:
                    for buffer in sorted(self._graph.targets[view.buffer]):
                        if self._is_placed(buffer):
                            found[buffer] = None
        return found

    def _is_placed(self, buffer: int) -> bool:
        is_temporary = self._graph.buffers[buffer].storage == "temporary"
        return is_temporary and buffer not in self._results

    def place(self, order: Order, temporaries: dict[int, None]) -> tuple[Order, int]:
        """Give these temporaries offsets; the order then, and how many bytes that takes."""
        users: dict[int, list[int]] = {buffer: [] for buffer in temporaries}
        for index, node in enumerate(order.nodes):
            for buffer in self.used([node]):
                if buffer in users:
                    users[buffer].append(index)
        inside: dict[tuple[int, int], dict[int, None]] = {}
        for buffer in temporaries:
            body = self._only_body(order, users[buffer], buffer)
            if body is not None:
                inside.setdefault(body, {})[buffer] = None
                del users[buffer]
        sizes = {buffer: self._graph.buffers[buffer].nbytes for buffer in users}
        # Negative: the part of the arena that a loop or branch has for itself.
        placed = list(order.bodies)
        for index, bodies in enumerate(order.bodies):
            given = [inside.get((index, number), {}) for number in range(len(bodies))]
            if any(given):
                parts = [self.place(body, each) for body, each in zip(bodies, given, strict=True)]
                placed[index] = tuple(body for body, _ in parts)
                sizes[-1 - index], users[-1 - index] = max(size for _, size in parts), [index]
        offsets, nbytes, edges = self._pack(users, sizes, order.hazards)
        for buffer, offset in offsets.items():
            if buffer >= 0:
                self.offsets[buffer] = offset
        for (index, _), buffers in inside.items():
            for buffer in buffers:  # those of bodies inside the body among them
                self.offsets[buffer] += offsets[-1 - index]
        hazards = order.hazards.with_edges(edges) if edges else order.hazards
        return dataclasses.replace(order, hazards=hazards, bodies=tuple(placed)), nbytes

    def _only_body(self, order: Order, nodes: list[int], buffer: int) -> tuple[int, int] | None:
        """The one body that uses a temporary, which needn't outlive it."""
        if len(nodes) != 1:
            return None
        node = order.nodes[nodes[0]]
        # What was there before may be read by the body when it runs again.
        if not isinstance(node, (While, Switch)) or buffer not in node.temporaries:
            return None
        if isinstance(node, While):
            if any(buffer in self._graph.targets[pointer] for pointer in node.carried):
                return None
            return nodes[0], 0
        using = [n for n, body in enumerate(node.bodies) if buffer in self.used(body)]
        return (nodes[0], using[0]) if len(using) == 1 else None
