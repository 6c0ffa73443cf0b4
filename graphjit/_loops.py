"""Loops: `fori_loop` and `while_loop`, recorded where a function is traced, else run at once."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from graphjit._carry import integer, truth
from graphjit._eager_loops import counted
from graphjit._errors import TraceError
from graphjit._location import user_location
from graphjit._progress import ProgressBar
from graphjit._recorded_loop import RecordedLoop
from graphjit._trace import current
from graphjit._tracers import Tracer


def fori_loop(
    lower: Any,
    upper: Any,
    body: Callable[[Any, Any], Any],
    carry: Any,
    *,
    progress: bool = False,
) -> Any:
    """Run ``carry = body(i, carry)`` for every i from `lower` to ``upper - 1``.

    In a graphed function the body is traced once, with what Python code does in it besides (a list
    that it appends to is appended to once); it is traced again where a later iteration is given
    arrays of other strides. The index can be a kernel's argument, an operand of arithmetic and an
    array's first index (``xs[i]``).

    Parameters
    ----------
    lower, upper : int, or array of one
        The range. If the device computes it, or it is an argument that isn't static, the loop runs
        on the device.
    body : callable
        Takes the index and the carry, returns the next carry: of the same structure, with arrays of
        the same shapes and dtypes, and numbers of the same classes.
    carry : pytree
        What the first iteration is given.
    progress : bool
        Show a bar. The host then launches a hundredth of the iterations at a time and waits for
        them.

    Returns
    -------
    pytree
        The last carry; the one given if the range is empty.

    Raises
    ------
    TraceError
        If the body returns something else than it was given.
    TypeError
        If the range isn't one of integers.

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
    lower, upper = integer(lower, "lower"), integer(upper, "upper")
    trace = current()
    is_known = not isinstance(lower, Tracer) and not isinstance(upper, Tracer)
    if progress and not is_known:
        raise TraceError(
            f"fori_loop can't show progress (at {user_location()}): how often it runs isn't known"
        )
    if progress:
        body = ProgressBar("fori_loop", upper - lower).tells(body, lower)
    if trace is None:
        for index in counted(range(lower, upper)):
            carry = body(index, carry)
        return carry
    loop = RecordedLoop("fori_loop", trace, carry)

    def step(index: Any, carry: Any) -> tuple[Any, Any]:
        return body(index, carry), ()

    if is_known:
        return loop.over(range(lower, upper), step)[0]
    return loop.between(lower, upper, step)


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    carry: Any,
    *,
    max_iterations: int | None = None,
    check_every: int = 1,
) -> Any:
    """Run ``carry = body(carry)`` as long as ``cond(carry)`` is true.

    In a graphed function the loop runs on the device: the host launches it once and waits for
    nothing. Both functions are traced once. Numbers are computed as Numba computes them: integers
    have 64 bits, and a division by zero raises nothing. On the CPU Ctrl-C ends a loop; on a GPU
    nothing ends one that goes on for ever but `max_iterations`.

    Parameters
    ----------
    cond : callable
        Takes the carry, returns a number or an array of one element; it may launch kernels.
    body : callable
        Takes the carry, returns the next one: of the same structure, with arrays of the same
        shapes, dtypes and strides, and numbers of the same classes.
    carry : pytree
        What the first iteration is given.
    max_iterations : int, optional
        End after so many iterations whatever the condition says.
    check_every : int
        Test the condition before every so many iterations only, so that up to ``check_every - 1``
        more of them may run; a GPU takes some 4 µs to test it.

    Returns
    -------
    pytree
        The last carry; the one given if the condition doesn't hold for that. Arrays that leave the
        graphed function have memory of their own unless the body returns them as they were given,
        and numbers that leave it are arrays without axes.

    Raises
    ------
    TraceError
        If the body returns something else than it was given.
    ValueError
        If a limit isn't positive, or `max_iterations` no multiple of `check_every`.

    Examples
    --------
    >>> import graphjit as gj
    >>> from numba import cuda
    >>> @cuda.jit
    ... def halve(x, out):
    ...     out[0] = x[0] / 2
    >>> @gj.graphed
    ... def f(x):
    ...     def body(x):
    ...         out = gj.empty_like(x)
    ...         halve[1, 1](x, out)
    ...         return out
    ...     return gj.while_loop(lambda x: x.item() > 1, body, x)
    >>> f(gj.asarray([10.0])).copy_to_host()
    array([0.625])
    """
    every = operator.index(check_every)
    limit = None if max_iterations is None else operator.index(max_iterations)
    if every < 1 or (limit is not None and (limit < 0 or limit % every)):
        raise ValueError(
            f"max_iterations={limit} and check_every={every}: the first must be a multiple of the "
            "second, which must be positive"
        )
    trace = current()
    if trace is None:
        return _while_now(cond, body, carry, limit, every)

    def steps(carry: Any) -> Any:
        return fori_loop(0, every, lambda i, c: body(c), carry)

    once = body if every == 1 else steps
    if limit is None:
        loop = RecordedLoop("while_loop", trace, carry)
        return loop.as_long_as(cond, lambda index, carry: (once(carry), ()))
    loop = RecordedLoop("while_loop", trace, (carry, 0), is_counted=True)

    last, _ = loop.as_long_as(
        lambda counted: cond(counted[0]),
        lambda index, counted: ((once(counted[0]), counted[1] + every), ()),
        limit=lambda counted: counted[1] < limit,
    )
    return last


def _while_now(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    carry: Any,
    limit: int | None,
    every: int,
) -> Any:
    """`while_loop` outside graphed functions."""
    for done in counted(itertools.count()):
        if done % every == 0:
            is_over = limit is not None and done >= limit
            if is_over or not truth(cond(carry), "while_loop's condition"):
                break
        carry = body(carry)
    return carry
