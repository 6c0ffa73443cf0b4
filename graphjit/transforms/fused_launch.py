"""One launch that does what several do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from graphjit._nodes import Launch, Operand, View, constant
from graphjit.kernel.compose import Composition, Part, Private, Shape, compose
from graphjit.kernel.numba_types import value_type

# The elements that a register holds: of their own are private arrays of these kinds only.
_IN_REGISTERS = "biufc"


def views_of(launches: list[Launch]) -> list[View]:
    """The arrays that launches use, each once, in order."""
    return list(dict.fromkeys(o for each in launches for o in each.operands if isinstance(o, View)))


def fused_launch(
    launches: list[Launch],
    private: list[View],
    hidden: tuple[frozenset[int], ...],
    aliases: Mapping[int, Set[int]],
) -> Launch:
    """One launch that does what several do, thread by thread.

    Parameters
    ----------
    launches : list of Launch
        The launches, over one grid.
    private : list of View
        Arrays of which each thread has its own element, in no memory.
    hidden : tuple of frozenset of int
        For each launch, the leaves whose contents its compiler must not know (`seams`).
    aliases : mapping of int to set of int
        Which buffers may share memory.

    Returns
    -------
    Launch
    """
    return _Arguments(private).launch(launches, hidden, aliases)


class _Arguments:
    """The arguments of a fused launch, as they are found to be needed."""

    def __init__(self, private: list[View]) -> None:
        self._private = private
        self._places: dict[tuple[Operand, object], int] = {}
        self._types: dict[View, object] = {}

    def launch(
        self,
        launches: list[Launch],
        hidden: tuple[frozenset[int], ...],
        aliases: Mapping[int, Set[int]],
    ) -> Launch:
        parts = tuple(map(self._part, launches, hidden))
        arrays = [(o, place) for (o, _), place in self._places.items() if isinstance(o, View)]
        shapes = tuple(self._shape(view, place) for view, place in arrays)
        own = tuple(
            Private(self._types[view], self._integers(view.layout.shape)) for view in self._private
        )
        zero = self._integers((0,))[0] if any(hidden) else -1
        reads = {a.view: a for launch in reversed(launches) for a in launch.reads}
        writes = {a.view: a for launch in launches for a in launch.writes}
        # What is only read is better not promised to be unaliased: NVIDIA's compiler would take it
        # for constant, and read it before the kernel has waited for the one that wrote it.
        unaliased = frozenset(
            place
            for view, place in arrays
            if view in writes
            and sum(other.buffer in aliases[view.buffer] for other, _ in arrays) == 1
        )
        last = launches[-1]
        kernel = compose(
            Composition(
                parts,
                tuple(type_ for _, type_ in self._places),
                own,
                shapes,
                zero,
                unaliased,
                math.prod(last.block),
            )
        )
        return Launch(
            kernel,
            tuple(operand for operand, _ in self._places),
            last.grid,
            last.block,
            0,
            tuple(access for view, access in reads.items() if view not in self._private),
            tuple(access for view, access in writes.items() if view not in self._private),
            last.location,
        )

    def _part(self, launch: Launch, hidden: frozenset[int]) -> Part:
        arguments = []
        for operand, leaf in zip(launch.operands, launch.kernel.leaves, strict=True):
            if operand in self._private:
                assert isinstance(operand, View)
                self._types[operand] = leaf.type
                arguments.append(-1 - self._private.index(operand))
            else:
                arguments.append(self._place(operand, leaf.type))
        return Part(launch.kernel, tuple(arguments), frozenset(arguments[leaf] for leaf in hidden))

    def _shape(self, view: View, place: int) -> Shape:
        layout = view.layout
        return Shape(place, self._integers(layout.shape), self._integers(layout.strides))

    def _integers(self, values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._place(constant(v), value_type(v)) for v in values)

    def _place(self, operand: Operand, type_: object) -> int:
        return self._places.setdefault((operand, type_), len(self._places))


def is_kept_in_registers(launches: list[Launch], view: View) -> bool:
    """Whether an array of a thread's own is of any use: its elements are numbers, and read."""
    if view.layout.dtype.kind not in _IN_REGISTERS:
        return False
    return any(access.view == view for launch in launches for access in launch.reads)
