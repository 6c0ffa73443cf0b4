"""Bodies of loops and branches, while they are being recorded."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import numpy as np

from graphjit._control import Body, Carry, Recorded
from graphjit._layout import contiguous
from graphjit._nodes import Access, Operand, View
from graphjit._trace import Trace
from graphjit._tracers import ArrayTracer, ScalarTracer


class BodyRecorder:
    """Entered, it records nodes apart from those before; left, they can become a body.

    What is made from its own making to the end of the body, names for what is carried among it,
    can't be used afterwards.

    Parameters
    ----------
    trace : Trace
        Where.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._first = self._entered = len(trace.buffers)
        self._last: int | None = None
        self._first_scalar = len(trace.scalars)
        self._outer = trace.nodes
        self.nodes: list[Recorded] = []

    def __enter__(self) -> BodyRecorder:
        self._entered = len(self._trace.buffers)
        self._trace.nodes = self.nodes
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        trace = self._trace
        trace.nodes = self._outer
        if error is not None or self._last is None:
            self._last = len(trace.buffers)
        trace.ended |= set(trace.undecided(self._first_scalar))
        trace.ended |= {b for b in range(self._first, self._last) if self._is_own(b)}
        if error is not None:
            trace.failed = f"{type(error).__name__}: {error}"

    def end_of_temporaries(self) -> None:
        """Buffers that are made from here on are the same each time the body runs."""
        self._last = len(self._trace.buffers)

    def body(self, outputs: Iterable[Operand] = ()) -> Body:
        """What was recorded."""
        assert self._last is not None
        made = range(self._entered, self._last)
        temporaries = (b for b in made if self._trace.buffers[b].storage == "temporary")
        return Body(tuple(self.nodes), frozenset(temporaries), tuple(outputs))

    def inside(self, buffer: int) -> bool:
        """Whether a buffer is the body's own: another each time it runs."""
        assert self._last is not None
        return self._first <= buffer < self._last and self._is_own(buffer)

    def _is_own(self, buffer: int) -> bool:
        return self._trace.buffers[buffer].storage in ("temporary", "carried")


def accesses(
    trace: Trace,
    recorders: Iterable[BodyRecorder],
    versions: list[int],
    carries: Iterable[Carry] = (),
) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
    """What a node that holds these bodies reads and may write of what was there before it.

    Parameters
    ----------
    trace : Trace
        Where.
    recorders : iterable of BodyRecorder
        Those of its bodies.
    versions : list of int
        The buffers' versions before it.
    carries : iterable of Carry
        What it hands on.
    """
    recorders = list(recorders)
    inner = {carry.inner.buffer for carry in carries if isinstance(carry.inner, View)}
    initial = {carry.initial.buffer for carry in carries if isinstance(carry.initial, View)}
    read, written = set(initial), set()
    for recorder in recorders:
        for node in recorder.nodes:
            read |= {access.view.buffer for access in node.reads}
            written |= {access.view.buffer for access in node.writes}
    if written & inner:
        # After a swap any of them may be the one that is written.
        written |= initial
    for buffer in written & initial:
        trace.versions[buffer] += 1
    before = [b for b in range(len(trace.buffers)) if not any(each.inside(b) for each in recorders)]
    old = dict(enumerate(versions))
    return (
        tuple(Access(_whole(trace, b), old.get(b, 0)) for b in before if b in read),
        tuple(Access(_whole(trace, b), trace.versions[b]) for b in before if b in written),
    )


def _whole(trace: Trace, buffer: int) -> View:
    """All bytes of a buffer."""
    return View(buffer, 0, contiguous((trace.buffers[buffer].nbytes,), np.dtype(np.uint8)))


def stand_in(trace: Trace, value: Any, name: str) -> ArrayTracer | ScalarTracer:
    """What stands for a value like this one that a loop carries or a branch decides."""
    if isinstance(value, ArrayTracer):
        return trace.carried_array(value, name)
    return trace.carried_scalar(class_of(value), name)


def class_of(value: Any) -> type:
    """The class of a number, traced or not."""
    found: type = value._type if isinstance(value, ScalarTracer) else type(value)
    return found
