"""The body of a loop, while it is being recorded."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from graphjit._layout import contiguous
from graphjit._location import user_location
from graphjit._nodes import Access, Carry, Loop, Node, View
from graphjit._trace import Trace
from graphjit._tracers import ScalarTracer


class LoopBody:
    """Entered, it records nodes apart from those before; left, they can become a loop.

    Parameters
    ----------
    trace : Trace
        Where.
    index : ScalarTracer
        The loop's index.
    """

    def __init__(self, trace: Trace, index: ScalarTracer) -> None:
        self._trace = trace
        self._index = index._ref
        self._first = self._last = len(trace.buffers)
        self._versions = list(trace.versions)
        self._outer = trace.nodes
        self._nodes: list[Node] = []
        trace.indices.add(self._index)

    def __enter__(self) -> LoopBody:
        self._trace.nodes = self._nodes
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._trace.nodes = self._outer
        if error is not None:
            self._trace.failed = f"{type(error).__name__}: {error}"

    def end_of_temporaries(self) -> None:
        """Buffers that are made from here on are the same in all iterations."""
        self._last = len(self._trace.buffers)

    def repeat(self, bounds: range, carries: tuple[Carry, ...]) -> None:
        """Record a loop over what was recorded.

        Parameters
        ----------
        bounds : range
            The indices.
        carries : tuple of Carry
            What it hands on.
        """
        trace, inside = self._trace, range(self._first, self._last)
        temporaries = frozenset(b for b in inside if trace.buffers[b].storage == "temporary")
        inner = {carry.inner.buffer for carry in carries if isinstance(carry.inner, View)}
        initial = {carry.initial.buffer for carry in carries if isinstance(carry.initial, View)}
        read, written = set(initial), set()
        for node in self._nodes:
            read |= {access.view.buffer for access in node.reads}
            written |= {access.view.buffer for access in node.writes}
        if written & inner:
            # After a swap any of them may be the one that is written.
            written |= initial
        for buffer in written & initial:
            trace.versions[buffer] += 1
        before = range(self._first)
        trace.nodes.append(
            Loop(
                self._index,
                bounds.start,
                bounds.stop,
                carries,
                tuple(self._nodes),
                temporaries,
                tuple(Access(self._whole(b), self._versions[b]) for b in before if b in read),
                tuple(Access(self._whole(b), trace.versions[b]) for b in before if b in written),
                user_location(),
            )
        )

    def _whole(self, buffer: int) -> View:
        """All bytes of a buffer."""
        nbytes = self._trace.buffers[buffer].nbytes
        return View(buffer, 0, contiguous((nbytes,), np.dtype(np.uint8)))
