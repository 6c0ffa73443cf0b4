"""Checked calls of the CUDA driver."""

from __future__ import annotations

import threading
from typing import Any

from cuda.bindings import driver
from cuda.core import Device as CoreDevice

from graphjit._errors import CUDAError, DeviceMemoryError

_current = threading.local()


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a cuda.bindings call; raises where it failed.

    Parameters
    ----------
    result : tuple
        Error code and values, as cuda.bindings returns them.
    what : str
        What was being done, for the message.

    Raises
    ------
    DeviceMemoryError
        If the device has not enough memory left.
    CUDAError
        For any other failure.
    """
    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise DeviceMemoryError(f"{what}: the device has not enough memory left")
        _, text = driver.cuGetErrorString(error)
        message = text.decode() if isinstance(text, bytes) else str(text)
        raise CUDAError(f"{what}: {error.name}: {message}")
    return values[0] if len(values) == 1 else tuple(values)


def activate(index: int) -> Any:
    """Make a device current on this thread, as Numba and cuda.core share it."""
    if getattr(_current, "index", None) != index:
        from numba import cuda

        cuda.gpus[index].get_primary_context().push()
        _current.device = CoreDevice(index)
        _current.device.set_current()
        _current.index = index
    return _current.device


def launch(
    function: Any, grid: Any, block: Any, shared: int, stream: Any, params: int, name: str
) -> None:
    """Launch a kernel on a stream, outside any graph."""
    check(
        driver.cuLaunchKernel(function, *grid, *block, shared, stream or 0, params, 0),
        f"launching {name}",
    )
