"""`scan`: a loop that stacks what its iterations give."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import optree

from graphjit._creation import asarray, empty
from graphjit._eager_loops import counted
from graphjit._errors import TraceError
from graphjit._location import user_location
from graphjit._progress import ProgressBar
from graphjit._pytrees import flatten
from graphjit._recorded_loop import RecordedLoop
from graphjit._trace import current


def scan(
    body: Callable[[Any, Any], Any],
    carry: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    progress: bool = False,
) -> tuple[Any, Any]:
    """Run ``carry, y = body(carry, x)`` for every x along the first axis of `xs`.

    Parameters
    ----------
    body : callable
        Takes the carry and one element of each array in `xs`, returns the next carry (as for
        `fori_loop`) and a pytree of arrays and numbers to be stacked.
    carry : pytree
        What the first iteration is given.
    xs : pytree of arrays, optional
        All of the same length; if not given, x is None.
    length : int, optional
        Iterations; the length of `xs` if not given.
    progress : bool
        Show a bar, as `fori_loop` does.

    Returns
    -------
    carry : pytree
        The last one.
    ys : pytree of Array
        What the iterations returned, stacked along a new first axis.

    Raises
    ------
    ValueError
        If there is no length, or several.
    TraceError
        If the body returns another carry than it was given.

    Examples
    --------
    >>> import graphjit as gj
    >>> from numba import cuda
    >>> @cuda.jit
    ... def add(x, y, out):
    ...     out[0] = x[0] + y[0]
    >>> @gj.graphed
    ... def running_sum(xs):
    ...     def body(total, x):
    ...         out = gj.empty_like(total)
    ...         add[1, 1](total, x, out)
    ...         return out, out
    ...     return gj.scan(body, gj.zeros(1), xs)[1]
    >>> running_sum(gj.ones((3, 1))).copy_to_host().ravel()
    array([1., 2., 3.])
    """
    leaves, tree = flatten(xs)
    trace = current()
    leaves = [asarray(x) if trace is None else trace.traced(x, "xs") for x in leaves]
    bounds = range(_length(leaves, length))

    def one(index: Any, carry: Any) -> tuple[Any, Any]:
        return _pair(body(carry, optree.tree_unflatten(tree, [leaf[index] for leaf in leaves])))

    step = ProgressBar("scan", len(bounds)).tells(one, 0) if progress else one
    if trace is None:
        return _scan_now(step, carry, bounds)
    return RecordedLoop("scan", trace, carry).over(bounds, step)


def _scan_now(
    step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, bounds: range
) -> tuple[Any, Any]:
    """`scan` outside graphed functions."""
    if not bounds:
        raise ValueError("scan over nothing outside a graphed function: no y tells what to stack")
    stacks: list[Any] = []
    structure: Any = None
    for index in counted(bounds):
        carry, y = step(index, carry)
        parts, structure = flatten(y)
        parts = [asarray(part) for part in parts]
        if not stacks:
            stacks = [empty((len(bounds), *part.shape), part.dtype) for part in parts]
        for stack, part in zip(stacks, parts, strict=True):
            stack[index] = part
    return carry, optree.tree_unflatten(structure, stacks)


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TraceError(
            f"scan's body returned a {type(result).__name__} (at {user_location()}); it returns "
            "the next carry and what is stacked: return carry, y"
        )
    return result


def _length(leaves: list[Any], length: int | None) -> int:
    found: set[int] = {leaf.shape[0] for leaf in leaves if leaf.ndim}
    if length is not None:
        found.add(operator.index(length))
    if any(n < 0 for n in found):
        raise ValueError(f"scan's length is {length}; it can't be negative")
    if len(found) != 1 or not all(leaf.ndim for leaf in leaves):
        shapes = ", ".join(str(leaf.shape) for leaf in leaves) or "none"
        raise ValueError(
            f"scan needs one length: arrays in xs are of shapes {shapes}, length is {length}"
        )
    return found.pop()
