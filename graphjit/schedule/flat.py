"""Schedules as one flat list, for hosts that run loops and branches by jumping in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba.cuda import types

from graphjit._device_control import HostCall, Scheduled, Switch, While
from graphjit.schedule.hazards import Hazards
from graphjit.schedule.order import Order
from graphjit.schedule.schedule import Schedule


@dataclass(frozen=True)
class Run:
    """Nodes that are launched together."""

    order: Order


@dataclass
class Jump:
    """Goes on elsewhere than with the next item.

    Parameters
    ----------
    target : int
        Index of the item that follows.
    slot : int, optional
        The slot that decides; if not given, it always jumps.
    value : int
        If the slot holds this, the next item follows.
    """

    target: int
    slot: int | None = None
    value: int = 0


Item = Run | Jump | HostCall


def flatten(schedule: Schedule, is_apart: Callable[[Scheduled], bool]) -> list[Item]:
    """What a host does, in order.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    is_apart : callable
        Whether a loop, branch or call is the host's business, not the device's.

    Returns
    -------
    list of Run, Jump and HostCall
        All other nodes are in runs, those that follow each other in one.
    """
    items: list[Item] = []
    _add(items, schedule, schedule.order, is_apart)
    return items


def _add(
    items: list[Item], schedule: Schedule, order: Order, is_apart: Callable[[Scheduled], bool]
) -> None:
    first = 0
    for index, node in enumerate(order.nodes):
        if not is_apart(node):
            continue
        _add_run(items, order, first, index)
        first = index + 1
        bodies = order.bodies[index]
        if isinstance(node, While):
            start = len(items)
            test = Jump(0, schedule.slot(node.test, types.boolean), 1)
            items.append(test)
            _add(items, schedule, bodies[0], is_apart)
            items.append(Jump(start))
            test.target = len(items)
        elif isinstance(node, Switch):
            _add_switch(items, schedule, node, bodies, is_apart)
        else:
            assert isinstance(node, HostCall)
            items.append(node)
    _add_run(items, order, first, len(order.nodes))


def _add_run(items: list[Item], order: Order, first: int, end: int) -> None:
    """Add some nodes that follow each other."""
    if first == end:
        return
    inside = range(first, end)
    edges = tuple(
        (before - first, after - first)
        for before, after in order.hazards.edges
        if before in inside and after in inside
    )
    items.append(Run(Order(order.nodes[first:end], Hazards(edges, ()), order.bodies[first:end])))


def _add_switch(
    items: list[Item],
    schedule: Schedule,
    node: Switch,
    bodies: tuple[Order, ...],
    is_apart: Callable[[Any], bool],
) -> None:
    ends, slot = [], schedule.slot(node.index, types.int64)
    for value, body in enumerate(bodies):
        test = Jump(0, slot, value)
        items.append(test)
        _add(items, schedule, body, is_apart)
        ends.append(Jump(0))
        items.append(ends[-1])
        test.target = len(items)
    for end in ends:
        end.target = len(items)
