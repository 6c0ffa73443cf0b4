"""Functions of numbers as the device computes them, which is as Numba compiles them.

Integers are of 64 bits and wrap around, and a division by zero gives what the hardware gives.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphjit._nodes import Constant, Number

_OPERATORS = (
    "add sub mul truediv floordiv mod neg pos and_ or_ xor lshift rshift invert lt le gt ge eq ne"
)
_MATHS = (
    "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh degrees erf erfc exp expm1 fabs "
    "floor fmod gamma hypot isfinite isinf isnan lgamma log log10 log1p log2 pow radians sin sinh "
    "sqrt tan tanh trunc"
)
# NumPy's functions, and what is the same of numbers.
_UFUNCS = {
    **{
        getattr(np, name): getattr(operator, same)
        for name, same in (
            ("add", "add"),
            ("subtract", "sub"),
            ("multiply", "mul"),
            ("divide", "truediv"),
            ("floor_divide", "floordiv"),
            ("remainder", "mod"),
            ("negative", "neg"),
            ("less", "lt"),
            ("less_equal", "le"),
            ("greater", "gt"),
            ("greater_equal", "ge"),
            ("equal", "eq"),
            ("not_equal", "ne"),
        )
    },
    **{
        getattr(np, name): getattr(math, same)
        for name, same in (
            ("sin", "sin"),
            ("cos", "cos"),
            ("tan", "tan"),
            ("arcsin", "asin"),
            ("arccos", "acos"),
            ("arctan", "atan"),
            ("arctan2", "atan2"),
            ("hypot", "hypot"),
            ("sinh", "sinh"),
            ("cosh", "cosh"),
            ("tanh", "tanh"),
            ("arcsinh", "asinh"),
            ("arccosh", "acosh"),
            ("arctanh", "atanh"),
            ("exp", "exp"),
            ("expm1", "expm1"),
            ("log", "log"),
            ("log2", "log2"),
            ("log10", "log10"),
            ("log1p", "log1p"),
            ("sqrt", "sqrt"),
            ("fabs", "fabs"),
            ("isnan", "isnan"),
            ("isinf", "isinf"),
            ("isfinite", "isfinite"),
            ("deg2rad", "radians"),
            ("rad2deg", "degrees"),
        )
    },
    np.absolute: abs,
    np.minimum: np.minimum,
    np.maximum: np.maximum,
}
_FORMS: dict[Any, Callable[..., Any]] = {
    **{f: f for f in (abs, pow, round, bool, int, float, complex, min, max)},
    **{f: f for f in (np.bool_, np.int64, np.float64, np.complex128)},
    **{f: f for f in (getattr(operator, name) for name in _OPERATORS.split())},
    **{f: f for f in (getattr(math, name) for name in _MATHS.split())},
    **_UFUNCS,
}


def runs_on_devices(function: Callable[..., Any]) -> bool:
    """Whether the device can compute a function of numbers that was recorded."""
    try:
        return function in _FORMS
    except TypeError:  # not hashable
        return False


def device_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that Numba compiles in place of one that runs on devices."""
    return _FORMS[function]


def refusal(
    function: Callable[..., Any], operands: Sequence[Number], classes: Sequence[Any]
) -> str:
    """Why the device can't compute a function of these operands; empty if it can."""
    if not runs_on_devices(function):
        return "compute it in a kernel, from arrays"
    if function in (pow, operator.pow) and all(issubclass(c, (int, np.integer)) for c in classes):
        exponent = operands[1]
        if len(operands) > 2 or not isinstance(exponent, Constant) or exponent.value < 0:
            return "an integer to a power that may be negative is no integer; use a float"
    return ""


def conversions(function: Callable[..., Any], classes: Sequence[Any]) -> tuple[type | None, ...]:
    """The class that each operand is converted to first, as Python or NumPy would."""
    if function is operator.invert and classes[0] is bool:
        return (int,)
    given = [np.dtype(c) for c in classes if issubclass(c, np.generic)]
    weak: list[Any] = [c(1) for c in classes if not issubclass(c, np.generic)]
    if not given or not weak:
        return (None,) * len(classes)
    common = np.result_type(*given, *weak).type
    return tuple(None if issubclass(c, np.generic) else common for c in classes)
