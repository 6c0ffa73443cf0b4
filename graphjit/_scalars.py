"""Host scalars: what may be done to them while tracing, and their evaluation at a call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from graphjit._errors import ArgumentError
from graphjit._nodes import Constant, Scalar, ScalarRef

NUMBERS = (int, float, complex, bool, np.generic)
# What is recorded, by name: operators of Python, and what numbers.Number classes answer to.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(operator, name)
        for name in (
            "add sub mul truediv floordiv mod and_ or_ xor lshift rshift lt le gt ge eq ne neg "
            "pos invert"
        ).split()
    },
    "abs": abs,
    "divmod": divmod,
    "pow": pow,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}


class UInt64Integer(int):
    """A Python integer beyond int64: Numba types it as uint64, Python goes on calculating."""


# What operands are tried with: most functions take 1, but math.atanh(1) and math.log(1, 1) raise.
_TRIALS = (1, 0, 2, 0.5)


@dataclass(frozen=True)
class Applied:
    """A function of numbers in lists, tuples and keywords, as one of numbers alone.

    Parameters
    ----------
    function : callable
        The function.
    tree : optree.PyTreeSpec
        Structure of its positional and keyword arguments.
    """

    function: Callable[..., Any]
    tree: optree.PyTreeSpec

    def __call__(self, *numbers: Any) -> Any:
        """Call the function with these numbers in its arguments."""
        args, keywords = optree.tree_unflatten(self.tree, numbers)
        return self.function(*args, **keywords)


@dataclass(frozen=True)
class Item:
    """One of the numbers that a function gives in a tuple.

    Parameters
    ----------
    function : callable
        The function.
    index : int
        Which of its numbers.
    """

    function: Callable[..., Any]
    index: int

    def __call__(self, *numbers: Any) -> Any:
        """Call the function and choose."""
        return self.function(*numbers)[self.index]


def sample(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """A value of the class, or tuple of values of the classes, that an operation gives.

    Parameters
    ----------
    function : callable
        The operation.
    operands : sequence
        A class for a traced operand, the value itself for a constant.

    Returns
    -------
    object
        What Python or NumPy gives for some values of those classes.
    """
    failure: Exception
    with np.errstate(all="ignore"):
        for trial in _TRIALS:
            try:
                return function(*(o(trial) if isinstance(o, type) else o for o in operands))
            except (ArithmeticError, ValueError) as error:
                failure = error
    raise failure


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
    Exception
        What an operation raises, with a note that says which and where it is written.
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
        values.append(applied(scalar, operands))
    return values


def applied(scalar: Scalar, operands: Sequence[Any]) -> Any:
    """The value of an operation for these operands; raises as `evaluate` does."""
    assert scalar.function is not None
    try:
        value = scalar.function(*operands)
    except Exception as error:
        error.add_note(f"  in {_text(scalar, operands)}, at {scalar.location}")
        raise
    if type(value) is not scalar.type:
        raise ArgumentError(
            f"the scalar {_text(scalar, operands)} is "
            f"{type(value).__name__} now and was {scalar.type.__name__} when the function was "
            "traced; make its class depend on nothing but the classes of the arguments"
        )
    return value


def _text(scalar: Scalar, operands: Sequence[Any]) -> str:
    # Python refuses to print integers of thousands of digits.
    shown = ("..." if isinstance(o, int) and o.bit_length() > 1000 else repr(o) for o in operands)
    return f"{scalar.op}({', '.join(shown)})"


def operand_type(operand: ScalarRef | Constant, scalars: Sequence[Scalar]) -> Any:
    """What `sample` takes for an operand."""
    return scalars[operand.index].type if isinstance(operand, ScalarRef) else operand.value
