"""Work whose results nobody reads is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import cast

from graphjit._device_control import Scheduled, every, used
from graphjit._graph import Graph
from graphjit._layout import overlap
from graphjit._nodes import Access, Copy, Fill, Launch, View, Work
from graphjit.transforms.removed import Removed
from graphjit.transforms.thread_elements import ThreadElements


def without_dead_work(graph: Graph) -> tuple[Graph, tuple[Removed, ...]]:
    """The graph without nodes that write only what is never read, or overwritten before.

    Loops and branches are left as they are, and launches that print or can stop the device. The
    versions of buffers keep their numbers.

    Parameters
    ----------
    graph : Graph
        The program, with its control lowered.

    Returns
    -------
    Graph, tuple of Removed
        What is left, and what isn't, in order.
    """
    wanted = _Wanted(graph)
    kept: list[Scheduled] = []
    removed: list[Removed] = []
    for node in reversed(cast("tuple[Scheduled, ...]", graph.nodes)):
        if not isinstance(node, Work):
            wanted.use_all(node)
        elif _shows(node) or any(wanted.is_wanted(access.view) for access in node.writes):
            for view in _overwritten(node):
                wanted.forget(view)
            for access in node.reads:
                wanted.use(access.view)
        else:
            removed.append(Removed(graph.describe(node), "nothing reads what it writes"))
            continue
        kept.append(node)
    if not removed:
        return graph, ()
    return dataclasses.replace(graph, nodes=tuple(reversed(kept))), tuple(reversed(removed))


class _Wanted:
    """What is read later, while nodes are gone through backwards."""

    def __init__(self, graph: Graph) -> None:
        self._targets = graph.targets
        self._outside = {b.index for b in graph.buffers if b.storage in ("input", "closure")}
        self._sizes = {b.index: b.nbytes for b in graph.buffers}
        # The outside ones that are read later: others may share memory with them.
        self._read_outside: set[int] = set()
        # Parts of each buffer; None is all of it. The caller sees what is left in arguments.
        self._parts: dict[int, list[View | None]] = {buffer: [None] for buffer in self._outside}
        for output in graph.outputs:
            if isinstance(output, Access):
                self.use(output.view)

    def use(self, view: View) -> None:
        """Say that a view is read here."""
        for target in self._targets[view.buffer]:
            parts = self._parts.setdefault(target, [])
            part = None if target != view.buffer or view.moving else view
            if None not in parts and part not in parts:
                parts.append(part)
            if target in self._outside:
                self._read_outside.add(target)

    def use_all(self, node: Scheduled) -> None:
        """Say that all that nodes name is read here."""
        for each in every((node,)):
            for view in used(each):
                for target in self._targets[view.buffer]:
                    self._parts[target] = [None]
                    if target in self._outside:
                        self._read_outside.add(target)

    def is_wanted(self, view: View) -> bool:
        """Whether anything of a view is read later."""
        if not view.layout.size:
            return False
        for target in self._targets[view.buffer]:
            if target in self._outside and self._read_outside - {target}:
                return True
            for part in self._parts.get(target, ()):
                if part is None or target != view.buffer or view.moving:
                    return True
                if overlap(view.layout, view.offset, part.layout, part.offset):
                    return True
        return False

    def forget(self, view: View) -> None:
        """Say that all of a view is overwritten here."""
        if view.moving or self._targets[view.buffer] != {view.buffer}:
            return
        low, high = view.layout.extent
        start, end = view.offset + low, view.offset + high
        left: list[View | None] = []
        for part in self._parts.get(view.buffer, ()):
            if part is None:
                inside = start == 0 and end >= self._sizes[view.buffer]
            else:
                first, last = part.layout.extent
                inside = start <= part.offset + first and part.offset + last <= end
            if part != view and not (inside and view.layout.is_contiguous):
                left.append(part)
        self._parts[view.buffer] = left


def _shows(work: Work) -> bool:
    """Whether it can be told otherwise that a node ran."""
    return isinstance(work, Launch) and (work.kernel.effects.prints or work.kernel.effects.traps)


def _overwritten(work: Work) -> Iterable[View]:
    """The views of which every element is overwritten, without having been read."""
    if isinstance(work, (Copy, Fill)):
        return (work.writes[0].view,)
    elements = ThreadElements(work)
    reads = {access.view.buffer for access in work.reads}
    return [
        operand
        for leaf, operand in enumerate(work.operands)
        if isinstance(operand, View) and operand.buffer not in reads and elements.covers(leaf)
    ]
