"""What a compiler must not see across the seams of launches that become one.

A product that one kernel stores and the next one adds is rounded in between; a compiler that saw
both in one kernel would round once (`graphjit.kernel.contraction`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphjit._nodes import Launch, View
from graphjit.transforms.thread_elements import Elements, ThreadElements


def hidden_arguments(
    launches: list[Launch], elements: Callable[[Launch], ThreadElements]
) -> tuple[frozenset[int], ...]:
    """The arguments whose contents are to be hidden from each launch, as leaves of its kernel.

    Parameters
    ----------
    launches : list of Launch
        Launches that become one, in order.
    elements : callable
        What the threads of a launch touch.

    Returns
    -------
    tuple of frozenset of int
    """
    # Where products may be, by buffer; None where that isn't known.
    products: dict[int, set[Elements | None]] = {}
    result = []
    for launch in launches:
        found = elements(launch)
        result.append(
            frozenset(
                leaf
                for leaf, view in _floats(launch)
                if products.get(view.buffer)
                and any(touch.reads and touch.added for touch in found.touches(leaf))
            )
        )
        for leaf, view in _floats(launch):
            places = products.setdefault(view.buffer, set())
            if any(touch.writes and touch.product for touch in found.touches(leaf)):
                places.add(found.of(leaf))
            else:
                places.difference_update(found.surely_written(leaf))
    return tuple(result)


def _floats(launch: Launch) -> Iterator[tuple[int, View]]:
    """The arguments that may hold floating-point numbers."""
    for leaf, operand in enumerate(launch.operands):
        if isinstance(operand, View) and operand.layout.dtype.kind not in "biu":
            yield leaf, operand
