"""What the names that a recorded graph uses for carried values stand for."""

from __future__ import annotations

from graphjit._nodes import Number, Operand, ScalarRef, View


class Names:
    """What names stand for: those of one iteration or branch, and around it those of the graph.

    Parameters
    ----------
    outer : Names, optional
        Those around.
    """

    def __init__(self, outer: Names | None = None) -> None:
        self.outer = outer
        # Carried buffers: the view that each is, and the one that it stands for.
        self.views: dict[int, tuple[View, View]] = {}
        self.scalars: dict[int, Number] = {}
        # Temporaries of the body: the buffer that each is this time.
        self.buffers: dict[int, int] = {}

    def scalar(self, index: int) -> Number | None:
        """What a scalar is, if that was worked out here or around."""
        scope: Names | None = self
        while scope is not None:
            if index in scope.scalars:
                return scope.scalars[index]
            scope = scope.outer
        return None

    def view(self, buffer: int) -> tuple[int, int]:
        """The buffer that a name is, and how many bytes further on in it."""
        scope: Names | None = self
        while scope is not None:
            if buffer in scope.views:
                name, value = scope.views[buffer]
                return value.buffer, value.offset - name.offset
            if buffer in scope.buffers:
                return scope.buffers[buffer], 0
            scope = scope.outer
        return buffer, 0

    def set(self, name: View | ScalarRef, value: Operand) -> None:
        """Say what a carried name stands for."""
        if isinstance(name, View):
            assert isinstance(value, View)
            self.views[name.buffer] = name, value
        else:
            assert not isinstance(value, View)
            self.scalars[name.index] = value
