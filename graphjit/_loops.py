"""Loops: `fori_loop` and `scan`, recorded where a function is traced and run where none is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from graphjit._array import Array
from graphjit._creation import asarray, empty
from graphjit._errors import TraceError
from graphjit._layout import contiguous
from graphjit._location import user_location
from graphjit._loop_body import LoopBody
from graphjit._nodes import Carry, Moving
from graphjit._pytrees import flatten
from graphjit._refusals import concretization_error
from graphjit._trace import SCALARS, Trace, current
from graphjit._tracers import ArrayTracer, ScalarTracer, Tracer


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """Run ``carry = body(i, carry)`` for every i from `lower` to ``upper - 1``.

    In a graphed function the body is traced once. The index can be a kernel's argument, an operand
    of arithmetic and an array's first index (``xs[i]``).

    Parameters
    ----------
    lower, upper : int
        The range; not traced numbers.
    body : callable
        Takes the index and the carry, returns the next carry: of the same structure, with arrays of
        the same shapes and dtypes, and numbers of the same classes.
    carry : pytree
        What the first iteration is given.

    Returns
    -------
    pytree
        The last carry; the one given if the range is empty.

    Raises
    ------
    TraceError
        If the body returns something else than it was given.
    ConcretizationError
        If the range is only known when the graph runs.

    Examples
    --------
    >>> import graphjit as gj
    >>> from numba import cuda
    >>> @cuda.jit
    ... def add(x, i, out):
    ...     k = cuda.grid(1)
    ...     if k < x.size:
    ...         out[k] = x[k] + i
    >>> @gj.graphed
    ... def f(x):
    ...     def body(i, x):
    ...         out = gj.empty_like(x)
    ...         add[1, 32](x, i, out)
    ...         return out
    ...     return gj.fori_loop(0, 5, body, x)
    >>> f(gj.zeros(2)).copy_to_host()
    array([10., 10.])
    """
    bounds = _range(lower, upper)
    trace = current()
    if trace is None:
        for index in bounds:
            carry = body(index, carry)
        return carry
    return _Recorded("fori_loop", trace, bounds, carry).run(body)


def scan(
    body: Callable[[Any, Any], Any], carry: Any, xs: Any = None, length: int | None = None
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
    if trace is None:
        leaves = [
            leaf if isinstance(leaf, (Array, np.ndarray)) else asarray(leaf) for leaf in leaves
        ]
    else:
        leaves = [trace.traced(leaf, "xs") for leaf in leaves]
    bounds = range(_length(leaves, length))
    if trace is None:
        return _scan_now(body, carry, leaves, tree, bounds)
    recorded = _Recorded("scan", trace, bounds, carry)
    stacked: list[Any] = []

    def step(index: Any, carry: Any) -> Any:
        x = optree.tree_unflatten(tree, [leaf[index] for leaf in leaves])
        carry, y = _pair(body(carry, x))
        stacked.append(y)
        return carry

    carry = recorded.run(step, stacked)
    return carry, stacked[0]


class _Recorded:
    """A loop that is being recorded.

    Parameters
    ----------
    name : str
        The function's, for messages.
    trace : Trace
        Where.
    bounds : range
        The indices.
    carry : pytree
        What the first iteration is given.
    """

    def __init__(self, name: str, trace: Trace, bounds: range, carry: Any) -> None:
        self._name, self._trace, self._bounds = name, trace, bounds
        leaves, self._tree = flatten(carry)
        paths = self._tree.paths()
        self._names = ["carry" + "".join(f"[{part!r}]" for part in path) for path in paths]
        self._initial = [
            trace.traced(leaf, name) for leaf, name in zip(leaves, self._names, strict=True)
        ]
        self._index = trace.carried_scalar(int, "i")

    def run(self, body: Callable[[Any, Any], Any], stacked: list[Any] | None = None) -> Any:
        """Record the loop; the last carry. What is in `stacked` becomes stacks of it."""
        trace, count = self._trace, len(self._initial)
        inner = [self._stand_in(value, name) for value, name in self._with_names()]
        with LoopBody(trace, self._index) as recorded:
            result = body(self._index, optree.tree_unflatten(self._tree, inner))
            following = self._checked(*flatten(result))
            recorded.end_of_temporaries()
            if stacked is not None:
                stacked[0] = self._stack(stacked[0])
        results = [self._stand_in(value, name) for value, name in self._with_names()]
        parts = [
            [self._operand(value) for value in values]
            for values in (self._initial, inner, following, results)
        ]
        carries = tuple(Carry(*(part[place] for part in parts)) for place in range(count))
        recorded.repeat(self._bounds, carries)
        return optree.tree_unflatten(self._tree, results)

    def _with_names(self) -> list[tuple[Any, str]]:
        return list(zip(self._initial, self._names, strict=True))

    def _stand_in(self, value: Any, name: str) -> Tracer:
        if isinstance(value, ArrayTracer):
            return self._trace.carried_array(value, name)
        return self._trace.carried_scalar(_class_of(value), name)

    def _operand(self, value: Any) -> Any:
        return value._view if isinstance(value, ArrayTracer) else self._trace.operand(value)

    def _checked(self, leaves: list[Any], tree: Any) -> list[Any]:
        """What the body returned, if it is like what it was given."""
        if tree != self._tree:
            raise TraceError(
                f"{self._name}'s body was given a carry of the structure {self._tree} and returned "
                f"one of the structure {tree} (at {user_location()}); return what it was given"
            )
        checked = []
        for leaf, initial, name in zip(leaves, self._initial, self._names, strict=True):
            value = self._trace.traced(leaf, name)
            before, after = _described(initial), _described(value)
            if before != after:
                raise TraceError(
                    f"{self._name}'s body changes {name} from {before} to {after} "
                    f"(at {user_location()}); what it returns must be like what it is given"
                )
            if isinstance(value, ArrayTracer):
                value = self._alike(value, initial)
            checked.append(value)
        return checked

    def _alike(self, value: ArrayTracer, initial: ArrayTracer) -> ArrayTracer:
        """The array with the strides of the initial one, which the body was traced for."""
        if value._layout == initial._layout and (initial._readonly or not value._readonly):
            return value
        copy = self._trace.empty(initial._layout)
        copy[...] = value
        return copy

    def _stack(self, tree: Any) -> Any:
        """Stacks of what the body returned besides the carry."""
        leaves, structure = flatten(tree)
        stacks = []
        for leaf in leaves:
            value = self._trace.traced(leaf, "what scan stacks")
            is_array = isinstance(value, ArrayTracer)
            shape = value.shape if is_array else ()
            dtype = value.dtype if is_array else np.dtype(_class_of(value))
            stack = self._trace.empty(contiguous((len(self._bounds), *shape), dtype))
            self._trace.assign(_element(stack, self._index), value)
            stacks.append(stack)
        return optree.tree_unflatten(structure, stacks)


def _element(stack: ArrayTracer, index: ScalarTracer) -> ArrayTracer:
    """The element that a loop is at; there are none if the loop has no iterations."""
    layout = contiguous(stack.shape[1:], stack.dtype)
    step = Moving(index._ref, stack.shape[0], stack.strides[0], user_location())
    return stack._derived(layout, 0, (step,))


def _scan_now(
    body: Callable[[Any, Any], Any], carry: Any, leaves: list[Any], tree: Any, bounds: range
) -> tuple[Any, Any]:
    """`scan` outside graphed functions."""
    if not bounds:
        raise ValueError("scan over nothing outside a graphed function: no y tells what to stack")
    stacks: list[Any] = []
    structure: Any = None
    for index in bounds:
        carry, y = _pair(body(carry, optree.tree_unflatten(tree, [leaf[index] for leaf in leaves])))
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


def _range(lower: Any, upper: Any) -> range:
    for bound in (lower, upper):
        if isinstance(bound, Tracer):
            raise concretization_error(
                "the range of a loop",
                bound,
                "make it static (static_argnames); ranges that are only known when the graph runs "
                "don't work yet",
            )
    return range(operator.index(lower), operator.index(upper))


def _length(leaves: list[Any], length: int | None) -> int:
    found: set[int] = {leaf.shape[0] for leaf in leaves if leaf.ndim}
    if length is not None:
        found.add(operator.index(length))
    if len(found) != 1 or not all(leaf.ndim for leaf in leaves):
        shapes = ", ".join(str(leaf.shape) for leaf in leaves) or "none"
        raise ValueError(
            f"scan needs one length: arrays in xs are of shapes {shapes}, length is {length}"
        )
    return found.pop()


def _class_of(value: Any) -> type:
    found: type = value._type if isinstance(value, ScalarTracer) else type(value)
    return found


def _described(value: Any) -> str:
    """What must stay the same of a carried value."""
    if isinstance(value, ArrayTracer):
        return f"{value.dtype}{list(value.shape)}"
    assert isinstance(value, (ScalarTracer, *SCALARS))
    return _class_of(value).__name__
