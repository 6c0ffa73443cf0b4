"""Python functions that a graph calls: `host_callback`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphjit._array import Array
from graphjit._carry import number
from graphjit._device_control import HostCall
from graphjit._eager_loops import eager_iterations
from graphjit._location import user_location
from graphjit._trace import current
from graphjit._tracers import ArrayTracer


def host_callback(fn: Callable[..., Any], *values: Any, every: int = 1) -> None:
    """Call ``fn(*values)`` on the host at this place in the order of a graph.

    For a log line, a picture or a file of what a simulation is like by now. The call has what was
    computed before it, and nothing after it runs until it returns. A loop that holds one is driven
    from the host; with a large `every` that costs little.

    Parameters
    ----------
    fn : callable
        What to call; its result is ignored. It is given NumPy arrays of its own and numbers.
    *values : array or number
        What to call it with.
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
    traced = [
        trace.traced(value, f"value {place} of host_callback") for place, value in enumerate(values)
    ]
    operands = tuple(
        trace.operand(value if isinstance(value, ArrayTracer) else number(value, "a value"))
        for value in traced
    )
    reads = tuple(trace.output(value) for value in traced if isinstance(value, ArrayTracer))
    trace.nodes.append(
        HostCall(fn, operands, period, reads, user_location())  # type: ignore[arg-type]
    )


def _call_now(fn: Callable[..., Any], values: tuple[Any, ...], period: int) -> None:
    """`host_callback` outside graphed functions."""
    iterations = eager_iterations()
    done = iterations[-1] if iterations else 0
    if (done + 1) % period == 0:
        fn(*(np.array(v.copy_to_host()) if isinstance(v, Array) else v for v in values))
