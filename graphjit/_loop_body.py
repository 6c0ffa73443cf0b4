"""The body of a loop, while it is being recorded."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np

from graphjit._layout import contiguous
from graphjit._location import user_location
from graphjit._nodes import Access, Carry, Loop, Node, View
from graphjit._trace import Trace
from graphjit._tracers import ArrayTracer, ScalarTracer


class LoopBody:
    """Entered, it records nodes apart from those before; left, they can become a loop.

    Parameters
    ----------
    trace : Trace
        Where.
    initial : list of ArrayTracer, ScalarTracer or number
        What the first iteration is given.
    names : list of str
        What messages call that.
    """

    def __init__(self, trace: Trace, initial: list[Any], names: list[str]) -> None:
        self._trace = trace
        self._first = self._last = len(trace.buffers)
        self._versions = list(trace.versions)
        self._outer = trace.nodes
        self._nodes: list[Node] = []
        # The loop's index, and what stands for what it carries.
        self.index = trace.carried_scalar(int, "i")
        self.inner = [
            stand_in(trace, value, name) for value, name in zip(initial, names, strict=True)
        ]
        trace.indices.add(self.index._ref)

    def __enter__(self) -> LoopBody:
        self._trace.nodes = self._nodes
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        trace = self._trace
        trace.nodes = self._outer
        last = self._last if error is None else len(trace.buffers)
        trace.ended |= {self.index._ref} | {
            v._ref for v in self.inner if isinstance(v, ScalarTracer)
        }
        trace.ended |= {b for b in range(self._first, last) if self._is_own(b)}
        if error is not None:
            trace.failed = f"{type(error).__name__}: {error}"

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
        before = [b for b in range(len(trace.buffers)) if b not in inside or not self._is_own(b)]
        versions = dict(enumerate(self._versions))
        trace.nodes.append(
            Loop(
                self.index._ref,
                bounds.start,
                bounds.stop,
                carries,
                tuple(self._nodes),
                temporaries,
                tuple(Access(self._whole(b), versions.get(b, 0)) for b in before if b in read),
                tuple(Access(self._whole(b), trace.versions[b]) for b in before if b in written),
                user_location(),
            )
        )

    def _is_own(self, buffer: int) -> bool:
        """Whether a buffer that came up in the body is another at each iteration."""
        return self._trace.buffers[buffer].storage in ("temporary", "carried")

    def _whole(self, buffer: int) -> View:
        """All bytes of a buffer."""
        nbytes = self._trace.buffers[buffer].nbytes
        return View(buffer, 0, contiguous((nbytes,), np.dtype(np.uint8)))


def stand_in(trace: Trace, value: Any, name: str) -> ArrayTracer | ScalarTracer:
    """What stands for a value like this one that a loop carries."""
    if isinstance(value, ArrayTracer):
        return trace.carried_array(value, name)
    return trace.carried_scalar(class_of(value), name)


def class_of(value: Any) -> type:
    """The class of a number, traced or not."""
    found: type = value._type if isinstance(value, ScalarTracer) else type(value)
    return found
