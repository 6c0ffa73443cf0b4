"""Host scalars: what may be done to them while tracing, and their evaluation at a call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphjit._errors import ArgumentError
from graphjit._graph import Constant, Scalar, ScalarRef

NUMBERS = (int, float, complex, bool, np.generic)
# What is recorded, by name: operators of Python, and what numbers.Number classes answer to.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(operator, name)
        for name in (
            "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift lt le gt ge eq ne neg "
            "pos invert"
        ).split()
    },
    "abs": abs,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}


class UInt64Integer(int):
    """A Python integer beyond int64: Numba types it as uint64, Python goes on calculating."""


def result_type(function: Callable[..., Any], operands: Sequence[Any]) -> type:
    """Class of an operation's result, from operands of the right classes.

    Parameters
    ----------
    function : callable
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
            return type(function(*sample))
        except ZeroDivisionError:
            # A constant zero divisor: the class is that of any other division.
            return type(function(sample[0], type(sample[1])(1)))


def element(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A number as one element of an array, converted as NumPy's assignment converts it."""
    result = np.zeros((), dtype)
    with np.errstate(over="ignore"):
        result[()] = value
    return result


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
        assert scalar.function is not None
        value = scalar.function(*operands)
        if type(value) is not scalar.type:
            raise ArgumentError(
                f"the scalar {scalar.op}({', '.join(map(repr, operands))}) is "
                f"{type(value).__name__} now and was {scalar.type.__name__} when the function was "
                "traced; make its class depend on nothing but the classes of the arguments"
            )
        values.append(value)
    return values


def operand_type(operand: ScalarRef | Constant, scalars: Sequence[Scalar]) -> Any:
    """What `result_type` takes for an operand."""
    return scalars[operand.index].type if isinstance(operand, ScalarRef) else operand.value
