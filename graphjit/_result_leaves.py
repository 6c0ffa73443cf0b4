"""What the leaves of a traced function's result are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DynamicLeaf:
    """A result leaf that the graph computes: its place in `Graph.outputs`."""

    index: int


@dataclass(frozen=True)
class ArgumentLeaf:
    """A result leaf that is an argument itself: its place among the argument leaves."""

    index: int


@dataclass(frozen=True, eq=False)
class FixedLeaf:
    """A result leaf that doesn't depend on the arguments.

    An array that the function made is copied for each call; one it closes over is itself.
    """

    value: Any
    copied: bool


ResultLeaf = DynamicLeaf | ArgumentLeaf | FixedLeaf
