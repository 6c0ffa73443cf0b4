"""Python functions that a graph calls: `host_callback`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from graphjit._array import Array
from graphjit._device_control import HostCall
from graphjit._eager_loops import eager_iterations
from graphjit._location import user_location
from graphjit._nodes import Operand, constant
from graphjit._pytrees import flatten
from graphjit._trace import current
from graphjit._tracers import ArrayTracer, Tracer


def host_callback(fn: Callable[..., Any], *values: Any, every: int = 1) -> None:
    """Call ``fn(*values)`` on the host at this place in the order of a graph.

    For a log line, a picture or a file of what a simulation is like by now. The call has what was
    computed before it, and nothing after it runs until it returns. A loop that holds one is driven
    from the host; with a large `every` that costs little.

    Parameters
    ----------
    fn : callable
        What to call; its result is ignored.
    *values : pytree
        What to call it with: it is given NumPy arrays of its own in place of arrays, and numbers.
    every : int
        Call it in each so manyth iteration of the loop around it only: the first time after
        ``every - 1`` others.

    Raises
    ------
    ValueError
        If `every` isn't positive.
    Exception
        What `fn` raises ends the call of the graphed function; what it did before has happened.

    Examples
    --------
    >>> import graphjit as gj
    >>> @gj.graphed
    ... def f(x):
    ...     def body(i, x):
    ...         gj.host_callback(print, i, every=2)
    ...         return x
    ...     return gj.fori_loop(0, 5, body, x)
    >>> x = f(gj.zeros(1))
    1
    3
    """
    period = operator.index(every)
    if period < 1:
        raise ValueError(f"every is {every}; it must be positive")
    trace = current()
    if trace is None:
        _call_now(fn, values, period)
        return
    leaves, tree = flatten(values)
    operands: list[Operand] = []
    reads = []
    for leaf in leaves:
        is_array = isinstance(leaf, np.ndarray) or hasattr(type(leaf), "__cuda_array_interface__")
        if is_array or isinstance(leaf, Tracer):
            leaf = trace.traced(leaf, "a value of host_callback")
        if isinstance(leaf, ArrayTracer):
            reads.append(trace.output(leaf))
        operands.append(trace.operand(leaf) if isinstance(leaf, Tracer) else constant(leaf))
    called = functools.partial(_call_with, fn, tree)
    call = HostCall(called, tuple(operands), period, tuple(reads), user_location())  # type: ignore[arg-type]
    trace.nodes.append(call)


def _call_with(fn: Callable[..., Any], tree: Any, *leaves: Any) -> None:
    """Call a function with a tree of these leaves."""
    fn(*optree.tree_unflatten(tree, leaves))


def _call_now(fn: Callable[..., Any], values: tuple[Any, ...], period: int) -> None:
    """`host_callback` outside graphed functions."""
    iterations = eager_iterations()
    done = iterations[-1] if iterations else 0
    if (done + 1) % period == 0:
        leaves, tree = flatten(values)
        is_array = [isinstance(leaf, (Array, np.ndarray)) for leaf in leaves]
        own = (
            np.array(leaf.copy_to_host() if isinstance(leaf, Array) else leaf) if array else leaf
            for leaf, array in zip(leaves, is_array, strict=True)
        )
        _call_with(fn, tree, *own)
