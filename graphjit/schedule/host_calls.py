"""Calls of Python functions with values that a graph computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.np.numpy_support import as_dtype

from graphjit._device_control import HostCall
from graphjit._layout import Layout
from graphjit._nodes import Constant, StateRef, View
from graphjit.kernel import numba_types
from graphjit.schedule.schedule import Schedule


def call_host(
    schedule: Schedule,
    call: HostCall,
    slots: bytes,
    read: Callable[[int, Layout], np.ndarray[Any, Any]],
) -> None:
    """Call a function with the values that it is to be given now.

    Parameters
    ----------
    schedule : Schedule
        What the call belongs to.
    call : HostCall
        The call.
    slots : bytes
        What the schedule's slots hold.
    read : callable
        A copy of the elements at an address, of a layout.

    Raises
    ------
    Exception
        What the function raises, with a note that says where the call is written.
    """
    values = []
    for value in call.values:
        if isinstance(value, Constant):
            values.append(value.value)
        elif isinstance(value, View):
            place = schedule.address(value)
            base = int(np.frombuffer(slots, np.int64, 1, 8 * place.slot)[0])
            values.append(read(base + place.offset, value.layout))
        else:
            graph = schedule.graph
            class_ = (
                graph.state[value.index]
                if isinstance(value, StateRef)
                else graph.scalars[value.index].type
            )
            values.append(_number(schedule, value, class_, slots))
    try:
        call.function(*values)
    except BaseException as error:
        error.add_note(f"  in a call of the host, at {call.location}")
        raise


def _number(schedule: Schedule, ref: Any, class_: type, slots: bytes) -> Any:
    """The number that its slots hold, of the class that it has."""
    type_ = numba_types.class_type(class_)
    at = 8 * schedule.slot(ref, type_)
    if isinstance(type_, types.Complex):
        dtype = as_dtype(type_.underlying_float)
        real, imaginary = (np.frombuffer(slots, dtype, 1, at + 8 * part)[0] for part in (0, 1))
        return class_(complex(real, imaginary))
    dtype = np.dtype(np.bool_) if isinstance(type_, types.Boolean) else as_dtype(type_)
    return class_(np.frombuffer(slots, dtype, 1, at)[0])
