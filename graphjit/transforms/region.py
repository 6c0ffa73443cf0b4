"""A list of nodes in the making, with the updates of state that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphjit._device_control import Assignment, Move, Scheduled, Update
from graphjit._layout import Layout
from graphjit._location import Location
from graphjit._nodes import StateRef, View

_BYTE = Layout((), (), np.dtype(np.uint8))
# What an assignment needs or gives: a number, or the index of a pointer.
State = StateRef | int


class Region:
    """The nodes of a graph, of a loop's body or of a branch, in the making.

    Parameters
    ----------
    outer : Region or None
        What it is in.
    """

    def __init__(self, outer: Region | None) -> None:
        self._outer = outer
        self.nodes: list[Scheduled] = []
        # Assignments that need nothing but what is there when the region is entered.
        self.prologue: list[Assignment] = []
        # Those that the next node needs.
        self._pending: list[Assignment] = []
        # State that changes while the region runs.
        self._changed: set[State] = set()
        # The pointers among it that the pending assignments change: where they will point, in terms
        # of what is before them.
        self._moved: dict[int, View | None] = {}
        # What was assigned, by how it is computed.
        self._known: dict[Any, State] = {}

    def append(self, node: Scheduled) -> None:
        """Add a node, after the assignments that are due."""
        self.flush(node.location)
        self.nodes.append(node)

    def flush(
        self,
        location: Location,
        decides: StateRef | None = None,
        then: Iterable[Assignment] = (),
    ) -> None:
        """Add an update with the assignments that are due, if there are any or it decides."""
        if self._pending or decides is not None:
            update = Update(tuple(self._pending), decides, tuple(then), location)
            self.nodes.append(update)
            self._pending.clear()
            self._moved.clear()

    def assign_now(self, assignment: Assignment, targets: Iterable[State]) -> None:
        """Assign before the next node."""
        self._pending.append(assignment)
        if isinstance(assignment, Move):
            self._moved |= {
                target: self.before_update(_first_byte(view))
                for target, view in assignment.pointers
            }
        self.changes(targets)

    def changes(self, targets: Iterable[State]) -> None:
        """Say that state changes here, so that nothing computed from it before holds any more."""
        self._changed.update(targets)
        self._known.clear()

    def assigned(
        self, key: Any, needs: Iterable[State], make: Callable[[], tuple[State, Assignment]]
    ) -> State:
        """The state that a computation gives, which is made as early as it can be.

        Parameters
        ----------
        key : object
            What is computed.
        needs : iterable of StateRef or int
            The state that it is computed from.
        make : callable
            Makes the target and its assignment.
        """
        region: Region | None = self
        while region is not None:
            if key in region._known:
                return region._known[key]
            region = region._outer
        target, assignment = make()
        if self._outer is None or not self._changed.isdisjoint(needs):
            self._pending.append(assignment)
            self._changed.add(target)
            if isinstance(target, int):
                self._moved[target] = None
        else:
            self.prologue.append(assignment)
        self._known[key] = target
        return target

    def before_update(self, view: View) -> View | None:
        """A view as it is before the pending assignments, if it can be named then."""
        if view.buffer not in self._moved:
            return view
        place = self._moved[view.buffer]
        return place and View(place.buffer, place.offset + view.offset, view.layout)


def _first_byte(view: View) -> View:
    """The lowest byte of a view."""
    return View(view.buffer, view.offset + view.layout.extent[0], _BYTE)
