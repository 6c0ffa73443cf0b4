"""Loops: `fori_loop` and `scan`, recorded where a function is traced and run where none is."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from graphjit._creation import asarray, empty
from graphjit._errors import TraceError
from graphjit._layout import contiguous
from graphjit._location import user_location
from graphjit._loop_body import LoopBody, class_of, stand_in
from graphjit._nodes import Carry
from graphjit._pytrees import flatten
from graphjit._refusals import concretization_error
from graphjit._trace import SCALARS, Trace, current
from graphjit._tracers import ArrayTracer, ScalarTracer, Tracer

# How often strides may change before the body is traced for good.
_MAX_LAYOUTS = 4


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """Run ``carry = body(i, carry)`` for every i from `lower` to ``upper - 1``.

    In a graphed function the body is traced once, with what Python code does in it besides (a list
    that it appends to is appended to once); it is traced again where a later iteration is given
    arrays of other strides. The index can be a kernel's argument, an operand of arithmetic and an
    array's first index (``xs[i]``).

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
    return _Recorded("fori_loop", trace, bounds, carry).run(lambda i, c: (body(i, c), ()))[0]


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
    leaves = [asarray(x) if trace is None else trace.traced(x, "xs") for x in leaves]
    bounds = range(_length(leaves, length))

    def step(index: Any, carry: Any) -> tuple[Any, Any]:
        return _pair(body(carry, optree.tree_unflatten(tree, [leaf[index] for leaf in leaves])))

    if trace is None:
        return _scan_now(step, carry, bounds)
    return _Recorded("scan", trace, bounds, carry).run(step)


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
        self._stacks: list[ArrayTracer] | None = None

    def run(self, body: Callable[[Any, Any], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Record the loop of a body that returns the next carry and what to stack.

        Returns
        -------
        carry, ys : pytree
            The last carry, and the stacks.
        """
        rest, initial = self._bounds, self._initial
        for _ in range(_MAX_LAYOUTS):
            recorded = LoopBody(self._trace, initial, self._names)
            with recorded:
                result, y = body(recorded.index, optree.tree_unflatten(self._tree, recorded.inner))
                following = self._checked(result)
                # By now: once the body has ended, its numbers are refused.
                parts = [
                    [self._trace.operand(value) for value in values]
                    for values in (initial, recorded.inner, following)
                ]
                recorded.end_of_temporaries()
                stacks = self._stack(y, recorded.index)
            is_last = not rest or all(map(_alike, initial, following))
            # The body is traced for strides: where the second iteration is given others, the first
            # is a loop by itself.
            part = rest if is_last else rest[:1]
            like = initial if not rest else following
            results = [
                stand_in(self._trace, value, name)
                for value, name in zip(like, self._names, strict=True)
            ]
            parts.append([self._trace.operand(value) for value in results])
            recorded.repeat(part, tuple(Carry(*of_one) for of_one in zip(*parts, strict=True)))
            initial, rest = results, rest[len(part) :]
            if not rest:
                return optree.tree_unflatten(self._tree, results), stacks
        raise TraceError(
            f"{self._name}'s body gives its carry other strides at every iteration "
            f"(at {user_location()}); return a copy, as in x.T.copy()"
        )

    def _checked(self, result: Any) -> list[Any]:
        """The leaves of what the body returned, if it is like what it was given."""
        _, tree = flatten(result)
        try:
            leaves = self._tree.flatten_up_to(result)  # dicts with their keys in another order too
        except (ValueError, TypeError):
            raise TraceError(
                f"{self._name}'s body was given a carry of the structure {_written(self._tree)} "
                f"and returned one of the structure {_written(tree)} (at {user_location()}); "
                "return what it was given"
            ) from None
        checked = []
        for leaf, initial, name in zip(leaves, self._initial, self._names, strict=True):
            value = self._trace.traced(leaf, name)
            before, after = _described(initial), _described(value)
            if before != after:
                raise TraceError(
                    f"{self._name}'s body changes {name} from {before} to {after} "
                    f"(at {user_location()}); what it returns must be like what it is given"
                )
            checked.append(value)
        return checked

    def _stack(self, tree: Any, index: ScalarTracer) -> Any:
        """Stacks of what the body returned besides the carry."""
        leaves, structure = flatten(tree)
        values = [self._trace.traced(leaf, "what scan stacks") for leaf in leaves]
        if self._stacks is None:
            self._stacks = [self._new_stack(value) for value in values]
        for stack, value in zip(self._stacks, values, strict=True):
            stack[index] = value
        return optree.tree_unflatten(structure, self._stacks)

    def _new_stack(self, value: Any) -> ArrayTracer:
        is_array = isinstance(value, ArrayTracer)
        shape = value.shape if is_array else ()
        dtype = value.dtype if is_array else np.dtype(class_of(value))
        return self._trace.empty(contiguous((len(self._bounds), *shape), dtype))


def _alike(before: Any, after: Any) -> bool:
    """Whether a body that was traced for one value is right for the other, which is like it."""
    if not isinstance(before, ArrayTracer):
        return True
    strides = zip(before.shape, before.strides, after.strides, strict=True)
    return before._readonly == after._readonly and (
        before.size == 0 or all(n == 1 or one == other for n, one, other in strides)
    )


def _written(tree: Any) -> str:
    """A structure of pytrees as Python writes it, with a star for each leaf."""
    return re.sub(r"^PyTreeSpec\((.*?)(, NoneIsLeaf)?(, namespace='\w+')?\)$", r"\1", str(tree))


def _scan_now(
    step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, bounds: range
) -> tuple[Any, Any]:
    """`scan` outside graphed functions."""
    if not bounds:
        raise ValueError("scan over nothing outside a graphed function: no y tells what to stack")
    stacks: list[Any] = []
    structure: Any = None
    for index in bounds:
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
    if any(n < 0 for n in found):
        raise ValueError(f"scan's length is {length}; it can't be negative")
    if len(found) != 1 or not all(leaf.ndim for leaf in leaves):
        shapes = ", ".join(str(leaf.shape) for leaf in leaves) or "none"
        raise ValueError(
            f"scan needs one length: arrays in xs are of shapes {shapes}, length is {length}"
        )
    return found.pop()


def _described(value: Any) -> str:
    """What must stay the same of a carried value."""
    if isinstance(value, ArrayTracer):
        return f"{value.dtype}{list(value.shape)}"
    assert isinstance(value, (ScalarTracer, *SCALARS))
    return class_of(value).__name__
