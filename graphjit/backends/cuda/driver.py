"""Checked calls of the CUDA driver."""

from __future__ import annotations

import threading
from typing import Any

from cuda.bindings import driver
from cuda.core import Device as CoreDevice

from graphjit._errors import CUDAError, DeviceMemoryError


class _Current(threading.local):
    """The device that is current on this thread."""

    index: int | None = None
    device: Any = None
    context: int = 0


current_device = _Current()


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
    if current_device.index != index:
        from numba import cuda

        cuda.gpus[index].get_primary_context().push()
        current_device.device = CoreDevice(index)
        current_device.device.set_current()
        current_device.context = _context()
        current_device.index = index
    elif _context() != current_device.context:  # another library's, since
        current_device.device.set_current()
    return current_device.device


def _context() -> int:
    return int(driver.cuCtxGetCurrent()[1])


def launch(
    function: Any, grid: Any, block: Any, shared: int, stream: Any, params: int, name: str
) -> None:
    """Launch a kernel on a stream, outside any graph."""
    check(
        driver.cuLaunchKernel(function, *grid, *block, shared, stream or 0, params, 0),
        f"launching {name}",
    )
