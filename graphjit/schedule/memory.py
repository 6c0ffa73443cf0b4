"""One arena for all temporaries that stay inside a graph."""

from __future__ import annotations

from dataclasses import dataclass

from graphjit._graph import Graph
from graphjit.schedule.hazards import Hazards

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


def plan_arena(graph: Graph, hazards: Hazards) -> Arena:
    """Give each temporary an offset, reusing memory only where the hazards already order its users.

    Parameters
    ----------
    graph : Graph
        The program.
    hazards : Hazards
        Its order; the plan adds nothing to it.

    Returns
    -------
    Arena
    """
    results = set(graph.results)
    users: dict[int, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        for access in (*node.reads, *node.writes):
            buffer = graph.buffers[access.view.buffer]
            if buffer.storage == "temporary" and buffer.index not in results:
                users.setdefault(buffer.index, []).append(index)
    # A launch may name a buffer that it neither reads nor writes (its shape); it has no contents.
    masks = {buffer: sum(1 << n for n in set(nodes)) for buffer, nodes in users.items()}
    placed: list[tuple[int, int, int]] = []  # start, end, buffer
    offsets = []
    for temporary in users:
        size = -(-graph.buffers[temporary].nbytes // _ALIGNMENT) * _ALIGNMENT
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
        offsets.append((temporary, offset))
    return Arena(tuple(offsets), max((end for _, end, _ in placed), default=0))


def _apart(earlier: int, later: list[int], hazards: Hazards) -> bool:
    """Whether every node of the bit set `earlier` comes before every node of `later`."""
    return all(earlier & ~hazards.ancestors[node] == 0 for node in later)
