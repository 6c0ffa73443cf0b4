"""What recorded bodies consist of."""

from __future__ import annotations

import dataclasses

from graphjit._control import Body, Branch, Loop
from graphjit._device_control import HostCall
from graphjit._nodes import Constant, Work


def is_flat(body: Body) -> bool:
    """Whether a body is nothing but pieces of work and loops of so many of them."""
    return all(
        isinstance(node, Work)
        or (
            isinstance(node, Loop)
            and isinstance(node.lower, Constant)
            and isinstance(node.upper, Constant)
            and node.condition is None
            and is_flat(node.body)
        )
        for node in body.nodes
    )


def has_calls(body: Body) -> bool:
    """Whether nodes of a body call the host."""
    return any(
        isinstance(node, HostCall)
        or (isinstance(node, Loop) and has_calls(node.body))
        or (isinstance(node, Branch) and any(map(has_calls, node.bodies)))
        for node in body.nodes
    )


def without_calls(body: Body) -> Body:
    """A body without its own calls of the host."""
    nodes = tuple(node for node in body.nodes if not isinstance(node, HostCall))
    return dataclasses.replace(body, nodes=nodes)


def calling_always(body: Body) -> Body:
    """A body that calls the host each time it runs."""
    nodes = (
        dataclasses.replace(node, every=1) if isinstance(node, HostCall) else node
        for node in body.nodes
    )
    return dataclasses.replace(body, nodes=tuple(nodes))


def weight(body: Body) -> int:
    """How many nodes a body is, unrolled."""
    total = 0
    for node in body.nodes:
        if isinstance(node, Loop):
            times = 1
            if isinstance(node.lower, Constant) and isinstance(node.upper, Constant):
                times = max(0, node.upper.value - node.lower.value)
            total += 1 + times * weight(node.body)
        elif isinstance(node, Branch):
            total += 1 + sum(map(weight, node.bodies))
        else:
            total += 1
    return total
