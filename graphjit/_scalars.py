"""Host scalars: what may be done to them while tracing, and their evaluation at a call."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphjit._errors import ArgumentError
from graphjit._graph import Constant, Scalar, ScalarRef

_INT64 = range(-(2**63), 2**64)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}


def function(op: str) -> Callable[..., Any]:
    """The Python function that a scalar operation stands for."""
    if op.startswith("numpy."):
        ufunc: Callable[..., Any] = getattr(np, op.removeprefix("numpy."))
        return ufunc
    if op.startswith("cast."):
        return _class(op.removeprefix("cast."))
    found: Callable[..., Any] = _FUNCTIONS.get(op) or getattr(operator, op)
    return found


def _class(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(builtins, name, None) or getattr(np, name)
    return found


def result_type(op: str, operands: Sequence[Any]) -> type:
    """Class of an operation's result, from operands of the right classes.

    Parameters
    ----------
    op : str
        The operation.
    operands : sequence
        A class for a traced operand, the value itself for a constant.

    Returns
    -------
    type
        What Python or NumPy would give.
    """
    sample = [operand(1) if isinstance(operand, type) else operand for operand in operands]
    with np.errstate(all="ignore"):
        try:
            return type(function(op)(*sample))
        except ZeroDivisionError:
            # A constant zero divisor: the class is that of any other division.
            return type(function(op)(sample[0], type(sample[1])(1)))


def evaluate(scalars: Sequence[Scalar], inputs: Sequence[Any]) -> list[Any]:
    """The values of a graph's scalars, in order.

    Parameters
    ----------
    scalars : sequence of Scalar
        The graph's scalars.
    inputs : sequence
        Values of those that are inputs, in order.

    Returns
    -------
    list

    Raises
    ------
    ArgumentError
        If an operation gives another class than it did while tracing (such as a complex root).
    """
    values: list[Any] = []
    given = iter(inputs)
    for scalar in scalars:
        if scalar.op == "input":
            values.append(next(given))
            continue
        operands = [
            values[o.index] if isinstance(o, ScalarRef) else o.value for o in scalar.operands
        ]
        value = function(scalar.op)(*operands)
        if type(value) is not scalar.type:
            raise ArgumentError(
                f"the scalar {scalar.op}({', '.join(map(repr, operands))}) is "
                f"{type(value).__name__} now and was {scalar.type.__name__} when the function was "
                "traced; make its class depend on nothing but the classes of the arguments"
            )
        values.append(value)
    return values


def check_range(value: Any, name: str) -> None:
    """Refuse a Python integer that no Numba integer holds."""
    if isinstance(value, int) and value not in _INT64:
        raise ArgumentError(f"the integer {name}={value} doesn't fit in 64 bits")


def operand_type(operand: ScalarRef | Constant, scalars: Sequence[Scalar]) -> Any:
    """What `result_type` takes for an operand."""
    return scalars[operand.index].type if isinstance(operand, ScalarRef) else operand.value
