"""Errors for what can't be done with a traced value, with the user's line."""

from __future__ import annotations

import linecache
from typing import Any

from graphjit._errors import ConcretizationError, TraceError
from graphjit._location import Location, location_of, raised_by_user, user_location


def foreign_error(what: str, where: Location) -> TraceError:
    """The error for a tracer that was handed to another library."""
    return TraceError(
        f"another library {what} at {where}:\n    {source_line(where)}\n"
        "only Numba kernels become part of a graph (CuPy raw kernels, ufuncs of "
        "@vectorize(target=\"cuda\") and other libraries' calls don't); call it outside @graphed, "
        "or write it as a @cuda.jit kernel"
    )


def refused_by_others(error: Exception) -> TraceError | None:
    """What to raise for an exception with which another library refused a tracer.

    Parameters
    ----------
    error : Exception
        What came out of a traced function.

    Returns
    -------
    TraceError or None
        None if tracers have nothing to do with it.
    """
    kinds = TypeError | ValueError | NotImplementedError | AttributeError
    if not isinstance(error, kinds) or not any(
        name in str(error) for name in ("ArrayTracer", "ScalarTracer")
    ):
        return None
    if isinstance(error, AttributeError) and raised_by_user(error):
        return None
    where = location_of(error)
    return foreign_error(f"refused a traced value ({error})", where)


def concretization_error(use: str, value: Any, remedy: str) -> ConcretizationError:
    """The error for a use that needs a traced value now, with the user's line."""
    where = user_location()
    return ConcretizationError(
        f"{use} needs the value of {value!r}, which only exists when the graph runs.\n"
        f"  at {where}:\n    {source_line(where)}\n  {remedy}"
    )


def source_line(where: Location) -> str:
    """The user's line of code at a place."""
    return linecache.getline(where.file, where.line).strip() or "<source not available>"
