"""Branches: `cond` and `switch`, recorded where a function is traced, else run at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from graphjit._bodies import BodyRecorder, accesses, stand_in
from graphjit._carry import CarryTree, integer, same_strides, truth
from graphjit._control import Branch
from graphjit._errors import TraceError
from graphjit._location import user_location
from graphjit._trace import Trace, current
from graphjit._tracers import ArrayTracer, ScalarTracer


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Give ``true_fn(*operands)`` if `pred` is true, else ``false_fn(*operands)``.

    In a graphed function both are traced, and the device decides which one runs.

    Parameters
    ----------
    pred : number, or array of one element
        The condition.
    true_fn, false_fn : callable
        Return pytrees of the same structure, with arrays of the same shapes, dtypes and strides,
        and numbers of the same classes.
    *operands : pytree
        What they are called with.

    Returns
    -------
    pytree
        The result of the one that ran.

    Raises
    ------
    TraceError
        If the two return different things.

    Examples
    --------
    >>> import graphjit as gj
    >>> @gj.graphed
    ... def f(x):
    ...     return gj.cond(x.item() > 0, lambda: gj.ones(2), lambda: gj.zeros(2))
    >>> f(gj.asarray([3.0])).copy_to_host()
    array([1., 1.])
    """
    decision = truth(pred, "cond's pred")
    if not isinstance(decision, ScalarTracer):
        return (true_fn if decision else false_fn)(*operands)
    trace = current()
    assert trace is not None
    branches = {"false_fn": false_fn, "true_fn": true_fn}
    return _record("cond", trace, decision, branches, operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Give ``branches[index](*operands)``.

    In a graphed function all branches are traced, and the device decides which one runs.

    Parameters
    ----------
    index : int, or array of one integer
        Which branch; below zero it is the first, beyond the end the last.
    branches : sequence of callable
        At least one; what they return must be alike, as for `cond`.
    *operands : pytree
        What they are called with.

    Returns
    -------
    pytree
        The result of the one that ran.

    Raises
    ------
    ValueError
        If there are no branches.
    TraceError
        If they return different things.

    Examples
    --------
    >>> import graphjit as gj
    >>> @gj.graphed
    ... def f(k):
    ...     return gj.switch(k.item(), [lambda: gj.zeros(1), lambda: gj.ones(1)])
    >>> f(gj.asarray([1])).copy_to_host()
    array([1.])
    """
    branches = list(branches)
    if not branches:
        raise ValueError("switch was given no branches")
    which = integer(index, "switch's index")
    if not isinstance(which, ScalarTracer):
        return branches[min(max(operator.index(which), 0), len(branches) - 1)](*operands)
    trace = current()
    assert trace is not None
    named = {f"branch {number}": branch for number, branch in enumerate(branches)}
    return _record("switch", trace, which, named, operands)


def _record(
    owner: str,
    trace: Trace,
    index: ScalarTracer,
    branches: dict[str, Callable[..., Any]],
    operands: tuple[Any, ...],
) -> Any:
    """Record the branches; returns what stands for their results."""
    versions, number = list(trace.versions), trace.operand(index)
    recorders, bodies = [], []
    first: CarryTree | None = None
    for name, branch in branches.items():
        recorder = BodyRecorder(trace)
        with recorder:
            result = branch(*operands)
            if first is None:
                first = CarryTree(owner, trace, result, "result", f"{name} gives")
                leaves = likes = first.initial
            else:
                leaves = first.checked(result, name)
                _check_strides(owner, name, first, leaves)
                likes = [
                    b if isinstance(b, ArrayTracer) and b._readonly else a
                    for a, b in zip(likes, leaves, strict=True)
                ]
            outputs = [trace.operand(leaf) for leaf in leaves]
        recorders.append(recorder)
        bodies.append(recorder.body(outputs))
    assert first is not None
    results = [stand_in(trace, value, name) for value, name in zip(likes, first.names, strict=True)]
    reads, writes = accesses(trace, recorders, versions)
    trace.nodes.append(
        Branch(
            number,  # type: ignore[arg-type]
            tuple(bodies),
            tuple(trace.operand(value) for value in results),  # type: ignore[misc]
            reads,
            writes,
            user_location(),
        )
    )
    return first.unflatten(results)


def _check_strides(owner: str, name: str, first: CarryTree, leaves: list[Any]) -> None:
    for before, after, leaf in zip(first.initial, leaves, first.names, strict=True):
        if isinstance(before, ArrayTracer) and not same_strides(before, after):
            raise TraceError(
                f"{owner}'s {name} gives {leaf} with strides {after.strides}, another branch with "
                f"{before.strides} (at {user_location()}); return a copy: x.copy()"
            )
