"""Offsets for blocks of memory, some of which are never in use together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graphjit.schedule.hazards import Hazards

# What the CUDA allocator gives, and more than any vector load needs.
_ALIGNMENT = 256
# How often an order of placing is tried again, with the block on top placed first; fewer times for
# many blocks, since each try looks at all pairs.
_TRIES = 30
_PAIRS = 400_000


def rounded(nbytes: int) -> int:
    """A size as a multiple of the alignment of blocks."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class Packing:
    """First fit, the largest first, tried in several orders.

    Parameters
    ----------
    reuse_from : int
        Blocks of at least so many bytes may take over each other's memory where only the order of
        nodes keeps their users apart; edges then do.
    """

    def __init__(self, reuse_from: int) -> None:
        self._reuse_from = reuse_from

    def pack(
        self, users: dict[int, list[int]], sizes: dict[int, int], hazards: Hazards
    ) -> tuple[dict[int, int], int, list[tuple[int, int]]]:
        """Offsets of blocks, the bytes that they take, and edges that this adds.

        Parameters
        ----------
        users : dict of int to list of int
            The nodes that use each block, in order.
        sizes : dict of int to int
            Bytes of each.
        hazards : Hazards
            Which nodes wait for which.
        """
        blocks = list(users)
        extents = [rounded(sizes[block]) for block in blocks]
        before = _before([users[block] for block in blocks], hazards)
        waits = self._waits(blocks, users, extents, before)
        apart = [a | b for a, b in zip(before, waits, strict=True)]
        offsets, nbytes = _best(extents, apart, _busiest(list(users.values()), extents, hazards))
        edges = []
        for later, earlier_blocks in enumerate(waits):
            for earlier in _members(earlier_blocks):
                start, other = offsets[later], offsets[earlier]
                if start < other + extents[earlier] and other < start + extents[later]:
                    pairs = users[blocks[earlier]], users[blocks[later]]
                    edges += [(a, b) for a in pairs[0] for b in pairs[1]]
        return dict(zip(blocks, offsets, strict=True)), nbytes, edges

    def _waits(
        self,
        blocks: list[int],
        users: dict[int, list[int]],
        extents: list[int],
        before: list[int],
    ) -> list[int]:
        """For each block those that it may take over if its users wait."""
        large = [n for n, extent in enumerate(extents) if extent >= self._reuse_from]
        waits = [0] * len(blocks)
        for later in large:
            first = min(users[blocks[later]])
            for earlier in large:
                if max(users[blocks[earlier]]) < first and not before[later] >> earlier & 1:
                    waits[later] |= 1 << earlier
        return waits


def heaviest(
    users: dict[int, list[int]], sizes: dict[int, int], hazards: Hazards
) -> tuple[dict[int, int], int, list[tuple[int, int]]]:
    """The bytes of the heaviest set of blocks that may all be in use together.

    The blocks are partially ordered by whether all users of one come before all of another; what
    is sought is the heaviest antichain, which is what all blocks weigh less a maximum flow (R. P.
    Dilworth, A decomposition theorem for partially ordered sets, 1950, with weights).

    Parameters
    ----------
    users, sizes, hazards
        See `Packing.pack`.

    Returns
    -------
    dict, int, list
        Offsets, all 0; the bytes; and no edges.
    """
    import networkx

    blocks = list(users)
    extents = [rounded(sizes[block]) for block in blocks]
    flow = networkx.DiGraph()
    for block, earlier in enumerate(_before([users[block] for block in blocks], hazards)):
        flow.add_edge("from", (block, "out"), capacity=extents[block])
        flow.add_edge((block, "in"), "to", capacity=extents[block])
        flow.add_edges_from(((other, "out"), (block, "in")) for other in _members(earlier))
    saved = networkx.maximum_flow_value(flow, "from", "to") if blocks else 0
    return dict.fromkeys(blocks, 0), sum(extents) - saved, []


def _before(users: list[list[int]], hazards: Hazards) -> list[int]:
    """For each block a bit set of those whose users all come before all of its."""
    ancestors = []
    for nodes in users:
        common = hazards.ancestors[nodes[0]]
        for node in nodes:
            common &= hazards.ancestors[node]
        ancestors.append(common)
    # For each node the blocks whose users all come after it; so of each block.
    after_node = _transposed(ancestors, len(hazards.ancestors))
    after = []
    for nodes in users:
        common = after_node[nodes[0]]
        for node in nodes:
            common &= after_node[node]
        after.append(common)
    return _transposed(after, len(users))


def _transposed(rows: list[int], width: int) -> list[int]:
    """The columns of a matrix of bits."""
    size = -(-width // 8)
    packed = b"".join(row.to_bytes(size, "little") for row in rows)
    bits = np.frombuffer(packed, np.uint8).reshape(len(rows), size)
    columns = np.unpackbits(bits, axis=1, bitorder="little")[:, :width].T
    packed_columns = np.packbits(columns, axis=1, bitorder="little")
    return [int.from_bytes(column.tobytes(), "little") for column in packed_columns]


def _busiest(users: list[list[int]], extents: list[int], hazards: Hazards) -> int:
    """Bytes of the blocks that are in use while some node runs: no packing takes less."""
    descendants = [0] * len(hazards.ancestors)
    for first, second in sorted(hazards.edges, reverse=True):
        descendants[first] |= descendants[second] | 1 << second
    masks = [sum(1 << node for node in set(nodes)) for nodes in users]
    most = 0
    for node, ancestors in enumerate(hazards.ancestors):
        until, since = ancestors | 1 << node, descendants[node] | 1 << node
        used = (e for e, mask in zip(extents, masks, strict=True) if mask & until and mask & since)
        most = max(most, sum(used))
    return most


def _best(extents: Sequence[int], apart: Sequence[int], least: int) -> tuple[list[int], int]:
    """Offsets from the order of placing that takes the fewest bytes."""
    count = len(extents)
    conflicts = [
        (1 << count) - 1 & ~(one | other | 1 << n)
        for n, (one, other) in enumerate(zip(apart, _transposed(list(apart), count), strict=True))
    ]
    best: list[int] = [0] * count
    fewest = sum(extents) + 1
    by_size = sorted(range(count), key=lambda n: -extents[n])
    tries = max(1, min(_TRIES, _PAIRS // max(count * count, 1)))
    for order in (by_size, list(range(count))):
        for _ in range(tries):
            offsets = _first_fit(order, extents, conflicts)
            ends = [o + e for o, e in zip(offsets, extents, strict=True)]
            top = max(ends, default=0)
            if top < fewest:
                best, fewest = offsets, top
            if fewest <= least:
                return best, fewest
            peak = ends.index(top)
            order = [peak, *(n for n in order if n != peak)]
    return best, fewest


def _first_fit(order: Iterable[int], extents: Sequence[int], conflicts: Sequence[int]) -> list[int]:
    """Each block in turn at the lowest offset where it meets none that it conflicts with."""
    offsets = [0] * len(extents)
    placed = 0
    for block in order:
        size, offset = extents[block], 0
        taken = sorted(
            (offsets[n], offsets[n] + extents[n]) for n in _members(conflicts[block] & placed)
        )
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, end)
        offsets[block] = offset
        placed |= 1 << block
    return offsets


def _members(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
