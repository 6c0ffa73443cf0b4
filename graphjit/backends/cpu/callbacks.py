"""Functions that native kernels call in this process: special functions and printing.

The special functions are compiled by Numba when the first kernel needs one; printing goes through
Python's `sys.stdout`, one write a call, so that threads can't mix their lines.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import sys
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

_FORMAT = re.compile(r"%([-+ #0]*)(\d*)(?:\.(\d+))?(hh|h|ll|l|z|j|t|L)?([diouxXcsfFeEgGap%])")


def _print(format_address: int, buffer: int) -> int:
    """CUDA's vprintf: the values lie in the buffer one after the other, each at its alignment."""
    offset = 0

    def take(kind: Any) -> Any:
        nonlocal offset
        size = ctypes.sizeof(kind)
        offset = (offset + size - 1) // size * size
        value = kind.from_address(buffer + offset).value
        offset += size
        return value

    def expand(match: re.Match[str]) -> str:
        flags, width, precision, length, code = match.groups()
        if code == "%":
            return "%"
        spec = f"%{flags}{width}" + ("" if precision is None else f".{precision}")
        if code == "s":
            address = take(ctypes.c_void_p)
            text = ctypes.string_at(address).decode(errors="replace") if address else "(null)"
            return str((spec + "s") % text)
        if code in "fFeEgGa":
            return str((spec + ("f" if code == "a" else code)) % take(ctypes.c_double))
        if code == "p":
            return hex(take(ctypes.c_void_p) or 0)
        wide = length in ("ll", "l", "z", "j", "t")
        if code in "dic":
            value = take(ctypes.c_int64 if wide else ctypes.c_int32)
            return str((spec + ("c" if code == "c" else "d")) % value)
        value = take(ctypes.c_uint64 if wide else ctypes.c_uint32)
        return str((spec + ("d" if code == "u" else code)) % value)

    text = ctypes.string_at(format_address).decode(errors="replace")
    sys.stdout.write(_FORMAT.sub(expand, text))
    return 0


def _erfinv(y: float) -> float:
    """Giles (2010)'s first guess, then Newton's steps on erf (on erfc where erf saturates)."""
    if not -1.0 < y < 1.0:
        return math.inf * y if abs(y) == 1.0 else math.nan
    return math.copysign(_erfcinv_tail(1.0 - abs(y)), y) if abs(y) > 0.5 else _erfinv_centre(y)


def _erfinv_centre(y: float) -> float:
    x = y * 0.886226925452758
    for _ in range(6):
        x -= (math.erf(x) - y) / (1.1283791670955126 * math.exp(-x * x))
    return x


def _erfcinv_tail(q: float) -> float:
    """The x >= 0 with erfc(x) = q, by Halley's steps from an asymptotic guess."""
    t = math.sqrt(-2.0 * math.log(q / 2.0))
    x = (t - (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481))) * 0.7071067811865475
    for _ in range(4):
        density = 1.1283791670955126 * math.exp(-x * x)
        if density == 0.0:
            break
        step = (math.erfc(x) - q) / density
        x += step / (1.0 + x * step)
    return x


def _erfcinv(q: float) -> float:
    if not 0.0 < q < 2.0:
        return math.inf if q == 0.0 else -math.inf if q == 2.0 else math.nan
    if q < 0.5:
        return _erfcinv_tail(q)
    return -_erfcinv_tail(2.0 - q) if q > 1.5 else _erfinv_centre(1.0 - q)


def _erfcx(x: float) -> float:
    """exp(x*x) erfc(x): directly where both factors are normal, else its continued fraction."""
    if x < 10.0:
        # x*x is split so that its rounding error doesn't grow through the exponential.
        if x < -26.7:
            return math.inf
        high = math.floor(x * 1024.0) / 1024.0
        return math.exp(high * high) * math.exp((x - high) * (x + high)) * math.erfc(x)
    if x > 1e8:
        return 0.5641895835477563 / x
    f = 0.0
    for k in range(50, 0, -1):
        f = 0.5 * k / (x + f)
    return 0.5641895835477563 / (x + f)


def _normcdf(x: float) -> float:
    return 0.5 * math.erfc(-x * 0.7071067811865476)


def _normcdfinv(p: float) -> float:
    return -1.4142135623730951 * _erfcinv(2.0 * p)


_PYTHON: dict[str, Callable[[float], float]] = {
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "erfcx": _erfcx,
    "normcdf": _normcdf,
    "normcdfinv": _normcdfinv,
}
_parts = (_erfinv_centre, _erfcinv_tail, _erfcinv)
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_print)


@functools.cache
def _compiled(name: str) -> Any:
    """A special function as native code; what it calls is compiled with it."""
    import numba

    scope = {"math": math}
    for part in _parts:
        copy = _rebind(part, scope)
        scope[part.__name__] = numba.njit(copy)
    return numba.cfunc("float64(float64)")(_rebind(_PYTHON[name], scope))


def _rebind(function: Any, scope: dict[str, Any]) -> Any:
    return type(function)(function.__code__, scope, function.__name__)


SYMBOLS = frozenset(
    {"vprintf", "numba_attempt_nocopy_reshape", *(f"gj.special.{name}" for name in _PYTHON)}
)


@functools.cache
def provide(symbol: str) -> bool:
    """Make a callback's symbol known to LLVM.

    Parameters
    ----------
    symbol : str
        A name that generated code calls.

    Returns
    -------
    bool
        Whether there is such a callback.
    """
    if symbol == "vprintf":
        address = ctypes.cast(_PRINT, ctypes.c_void_p).value
    elif symbol == "numba_attempt_nocopy_reshape":
        # What numba-cuda links as CUDA C, Numba's own runtime has for the host.
        from numba import _helperlib

        address = getattr(_helperlib, "c_helpers")["attempt_nocopy_reshape"]  # noqa: B009
    elif symbol in SYMBOLS:
        address = _compiled(symbol.removeprefix("gj.special.")).address
    else:
        return False
    llvm.add_symbol(symbol, address)
    return True
