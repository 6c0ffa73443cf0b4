"""Work that depends on nothing that changes is computed once."""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import cast

import numpy as np

from graphjit._device_control import Scheduled, every, used
from graphjit._graph import Graph
from graphjit._layout import contiguous
from graphjit._nodes import (
    Access,
    Buffer,
    Copy,
    Fill,
    Launch,
    ScalarRef,
    StateRef,
    Storage,
    View,
    Work,
)
from graphjit.transforms.removed import Removed

_REASON = "it depends on nothing that changes, and was computed once"


def without_constants(graph: Graph) -> tuple[Graph, Graph | None, tuple[Removed, ...]]:
    """The graph without work that gives the same at every call, and that work by itself.

    That is work that depends on no argument, no array closed over and no dynamic scalar, on
    temporaries that nothing else writes and that aren't results. Launches that print, can stop the
    device or link in foreign code are left where they are, and so is what loops and branches do.

    Parameters
    ----------
    graph : Graph
        The program, with its control lowered.

    Returns
    -------
    Graph, Graph or None, tuple of Removed
        What is left, in which the temporaries are arrays closed over; what makes these, in their
        order, as bytes; and the work that it does.
    """
    found = _constant_nodes(graph)
    if not found:
        return graph, None, ()
    nodes = cast("tuple[Scheduled, ...]", graph.nodes)
    rest = tuple(node for place, node in enumerate(nodes) if place not in found)
    made = tuple(cast(Work, node) for place, node in enumerate(nodes) if place in found)
    versions = {access.view.buffer: access.version for node in made for access in node.writes}
    read = {view.buffer for node in every(rest) for view in used(node)} & versions.keys()
    outputs = []
    for buffer in sorted(read):
        layout = contiguous((graph.buffers[buffer].nbytes,), np.dtype(np.uint8))
        outputs.append(Access(View(buffer, 0, layout), versions[buffer]))
    name = f"the constants of {graph.name}"
    constant = Graph(name, _stored(graph, "temporary", None), (), (), made, tuple(outputs))
    removed = tuple(Removed(graph.describe(node), _REASON) for node in made)
    return (
        dataclasses.replace(graph, nodes=rest, buffers=_stored(graph, "closure", read)),
        constant,
        removed,
    )


def _stored(graph: Graph, storage: Storage, chosen: Container[int] | None) -> tuple[Buffer, ...]:
    """A graph's buffers, those chosen of another storage; all of them if None."""
    return tuple(
        dataclasses.replace(each, storage=storage)
        if chosen is None or each.index in chosen
        else each
        for each in graph.buffers
    )


def _constant_nodes(graph: Graph) -> frozenset[int]:
    """Places of the nodes that give the same at every call."""
    usable = {b.index for b in graph.buffers if b.storage == "temporary" and b.nbytes}
    usable -= set(graph.results)
    for buffer, targets in graph.targets.items():
        if targets != {buffer}:
            usable -= targets
    chosen = {
        place: node
        for place, node in enumerate(graph.nodes)
        if isinstance(node, (Launch, Copy, Fill)) and _is_fixed(node)
    }
    nodes = cast("tuple[Scheduled, ...]", graph.nodes)
    # What decides on loops and branches names what it reads and writes otherwise.
    for each in every(nodes):
        if not isinstance(each, (Launch, Copy, Fill)):
            usable -= {view.buffer for view in used(each)}
    changed = True
    while changed:
        changed = False
        ready: set[int] = set()
        # Read by what stays: no longer to be written, since all is computed before.
        settled: set[int] = set()
        for place, node in enumerate(nodes):
            chosen_one = chosen.get(place)
            if chosen_one is None:
                works = [each for each in every((node,)) if isinstance(each, (Launch, Copy, Fill))]
                usable -= {access.view.buffer for work in works for access in work.writes}
                settled |= {access.view.buffer for work in works for access in work.reads}
                continue
            written = {access.view.buffer for access in chosen_one.writes}
            reads = {access.view.buffer for access in chosen_one.reads}
            if written <= usable - settled and reads <= usable & ready:
                ready |= written
            else:
                del chosen[place]
                usable -= written
                changed = True
    return frozenset(chosen)


def _is_fixed(work: Work) -> bool:
    """Whether a node by itself does the same at every call."""
    if isinstance(work, Launch):
        effects = work.kernel.effects
        if effects.prints or effects.traps or work.kernel.linked or work.kernel.captured:
            return False
        operands = work.operands
    else:
        operands = (work.value,) if isinstance(work, Fill) else ()
    if any(isinstance(each, (ScalarRef, StateRef)) for each in operands):
        return False
    return not any(view.moving for view in used(work))
