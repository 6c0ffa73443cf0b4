"""One arena for all temporaries that stay inside a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphjit._device_control import Scheduled, Switch, While, every, used
from graphjit._graph import Graph
from graphjit.schedule.hazards import Hazards
from graphjit.schedule.order import Order

# What the CUDA allocator gives, and more than any vector load needs.
_ALIGNMENT = 256


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


def plan_arena(graph: Graph, order: Order) -> Arena:
    """Give each temporary an offset, reusing memory only where the hazards already order its users.

    What only the body of a loop or a branch uses gets memory with the other temporaries of that
    body, in a part of the arena that the loop or branch uses as a whole.

    Parameters
    ----------
    graph : Graph
        The program.
    order : Order
        Its order; the plan adds nothing to it.

    Returns
    -------
    Arena
    """
    plan = _Plan(graph)
    nbytes = plan.place(order, plan.used(order.nodes))
    return Arena(tuple((b, offset) for b, offset in plan.offsets.items()), nbytes)


class _Plan:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
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

    def place(self, order: Order, temporaries: dict[int, None]) -> int:
        """Give these temporaries offsets; how many bytes that takes."""
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
        for index, bodies in enumerate(order.bodies):
            given = [inside.get((index, number), {}) for number in range(len(bodies))]
            if any(given):
                parts = [self.place(body, each) for body, each in zip(bodies, given, strict=True)]
                sizes[-1 - index], users[-1 - index] = max(parts), [index]
        offsets, nbytes = _packed(users, sizes, order.hazards)
        for buffer, offset in offsets.items():
            if buffer >= 0:
                self.offsets[buffer] = offset
        for (index, _), buffers in inside.items():
            for buffer in buffers:  # those of bodies inside the body among them
                self.offsets[buffer] += offsets[-1 - index]
        return nbytes

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


def _packed(
    users: dict[int, list[int]], sizes: dict[int, int], hazards: Hazards
) -> tuple[dict[int, int], int]:
    """Offsets for memory of these users and sizes, and the bytes that it takes."""
    masks = {buffer: sum(1 << n for n in set(nodes)) for buffer, nodes in users.items()}
    placed: list[tuple[int, int, int]] = []  # start, end, buffer
    offsets = {}
    for temporary in users:
        size = -(-sizes[temporary] // _ALIGNMENT) * _ALIGNMENT
        taken = sorted(
            (start, end)
            for start, end, other in placed
            if not _apart(masks[other], users[temporary], hazards)
            and not _apart(masks[temporary], users[other], hazards)
        )
        offset = 0
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append((offset, offset + size, temporary))
        offsets[temporary] = offset
    return offsets, max((end for _, end, _ in placed), default=0)


def _apart(earlier: int, later: list[int], hazards: Hazards) -> bool:
    """Whether every node of the bit set `earlier` comes before every node of `later`."""
    return all(earlier & ~hazards.ancestors[node] == 0 for node in later)
