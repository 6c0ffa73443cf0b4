"""Nodes with their hazards, those inside loops and branches included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphjit._device_control import Scheduled, Switch, While
from graphjit.schedule.hazards import Hazards, find_hazards


@dataclass(frozen=True)
class Order:
    """Nodes, and what must wait for what.

    Parameters
    ----------
    nodes : tuple of node
        The nodes, in an order that respects the hazards.
    hazards : Hazards
        Theirs.
    bodies : tuple of tuple of Order
        For each node the orders of the nodes that it holds: one for a loop, one for each branch.
    """

    nodes: tuple[Scheduled, ...]
    hazards: Hazards
    bodies: tuple[tuple[Order, ...], ...]


def find_order(nodes: tuple[Scheduled, ...], aliases: Mapping[int, frozenset[int]]) -> Order:
    """The order of nodes, given which buffers may share memory."""
    bodies = tuple(
        tuple(find_order(body, aliases) for body in node.bodies)
        if isinstance(node, (While, Switch))
        else ()
        for node in nodes
    )
    return Order(nodes, find_hazards(nodes, aliases), bodies)
