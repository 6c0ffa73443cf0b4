"""Which device and which stream calls use."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from graphjit import backends
from graphjit._activity import activity
from graphjit._errors import DeviceError
from graphjit.backends.base import Device


class StreamAddress(int):
    """The address of a stream, which keeps the stream object it came from alive.

    The driver crashes on the address of a stream that was destroyed, and memory remembers the
    streams that used it.
    """

    owner: Any = None


class _ThreadState(threading.local):
    device: Device | None = None
    stream: StreamAddress | None = None
    trace: Any = None


_state = _ThreadState()
_process_device: Device | None = None


def devices(backend: str | None = None) -> tuple[Device, ...]:
    """The devices that graphs can run on.

    Parameters
    ----------
    backend : {"cpu", "cuda", "sycl"}, optional
        Only that backend's.

    Returns
    -------
    tuple of Device
        The first CUDA GPU, where there is one, the CPU, and what dpctl finds.

    Raises
    ------
    DeviceError
        If there is no such backend.

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.devices("cpu")[0].backend
    'cpu'
    """
    if backend is not None:
        return backends.get(backend).devices()
    names = ("cuda", "cpu", "sycl")
    return tuple(device for name in names for device in backends.get(name).devices())


def default_device() -> Device:
    """The device that new arrays and calls without device arrays use.

    Returns
    -------
    Device
        What `use_backend` chose, else what the variable GRAPHJIT_BACKEND names, else the first CUDA
        device, else the CPU.

    Raises
    ------
    DeviceError
        If the variable names a backend that has no device.

    Examples
    --------
    >>> import graphjit as gj
    >>> with gj.use_backend("cpu"):
    ...     print(gj.default_device())
    cpu:0
    """
    global _process_device
    if _state.device is not None:
        return _state.device
    if _process_device is None:
        name = os.environ.get("GRAPHJIT_BACKEND")
        found = backends.get("cuda").devices() or backends.get("cpu").devices()
        _process_device = _first_device(name) if name else found[0]
    return _process_device


class use_backend:
    """Choose the backend of new arrays and calls: from here on, or within a ``with`` block.

    Called as a function it sets the choice for the whole process; as a context manager it is undone
    at the end of the block and is this thread's alone.

    Parameters
    ----------
    backend : str
        ``"cpu"``, ``"cuda"`` or ``"sycl"`` for that backend's first device, or ``"sycl:"`` with
        dpctl's filter string after it: ``"sycl:level_zero:gpu:0"``.

    Raises
    ------
    DeviceError
        If there is no such backend, or it has no device.

    Examples
    --------
    >>> import graphjit as gj
    >>> with gj.use_backend("cpu"):
    ...     a = gj.zeros(3)
    >>> a.device.backend
    'cpu'
    """

    def __init__(self, backend: str) -> None:
        global _process_device
        self._device = _first_device(backend)
        # What to undo when it turns out to be a with block: this thread's choice, the process's.
        self._undo: tuple[Device | None, Device | None] | None = (_state.device, _process_device)
        self._outer: list[Device | None] = []
        if _state.device is not None:
            _state.device = self._device  # inside a with block: for the rest of it
        else:
            _process_device = self._device

    def __enter__(self) -> Device:
        global _process_device
        if self._undo is not None:
            _state.device, _process_device = self._undo
            self._undo = None
        self._outer.append(_state.device)
        _state.device = self._device
        return self._device

    def __exit__(self, *exception: object) -> None:
        _state.device = self._outer.pop()


@contextlib.contextmanager
def stream(handle: Any) -> Iterator[None]:
    """Launch on a stream within a ``with`` block.

    Parameters
    ----------
    handle : stream object or int
        A Numba, CuPy, PyTorch or cuda.core stream, the address of a CUstream, or a dpctl.SyclQueue
        of the same context as dpnp's. The CPU backend has no streams and ignores it.

    Raises
    ------
    TypeError
        If it isn't a stream.

    Examples
    --------
    >>> import graphjit as gj
    >>> with gj.stream(0):
    ...     a = gj.zeros(3)
    """
    outer = _state.stream
    mine = stream_address(handle)
    activity.count_stream(1)
    _state.stream = mine
    try:
        yield
    finally:
        _state.stream = outer
        activity.count_stream(-1)


def current_stream() -> StreamAddress | None:
    """Address of the stream that calls launch on; None for the default stream."""
    return _state.stream


def current_trace() -> Any:
    """The trace that runs on this thread, if one does."""
    return _state.trace


def set_trace(trace: Any) -> Any:
    """Make a trace this thread's; returns the one before."""
    outer = _state.trace
    change = (trace is not None) - (outer is not None)
    if change > 0:
        activity.count_trace(change)
    _state.trace = trace
    if change < 0:
        activity.count_trace(change)
    return outer


def synchronize() -> None:
    """Wait until the default device has finished all it was given.

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.synchronize()
    """
    device = default_device()
    backends.get(device.backend).synchronize(device)


# What brings a backend a device.
_NEEDS = {
    "cuda": "; is there an NVIDIA driver, and numba-cuda's [cu12] or [cu13]?",
    "sycl": "; pip install 'graphjit[sycl]' brings dpctl and Intel's runtime for the CPU",
}


def _first_device(name: str) -> Device:
    """The first device of a backend, or of those that a filter string after its name chooses."""
    name, _, wanted = name.partition(":")
    backend: Any = backends.get(name)
    # With nothing chosen, an error says why dpctl can't be imported.
    found = backend.choose(wanted) if name == "sycl" else backend.devices()
    if wanted and name != "sycl":
        raise DeviceError(f"backend {name!r} has only one device, without {wanted!r} after it")
    if not found:
        raise DeviceError(f"backend {name!r} has no device here{_NEEDS.get(name, '')}")
    device: Device = found[0]
    return device


def stream_address(handle: Any) -> StreamAddress | None:
    """The address of a stream object, which it keeps alive; None for the default stream."""
    if handle is None:
        return None
    address = handle if isinstance(handle, int) else _address_of(handle)
    if address in (0, 1):  # CU_STREAM_LEGACY is what no stream means
        return None
    result = StreamAddress(address)
    result.owner = handle
    return result


def _address_of(handle: Any) -> int:
    if hasattr(handle, "addressof_ref"):  # dpctl
        return int(handle.addressof_ref())
    for attribute in ("ptr", "cuda_stream", "handle"):  # CuPy, PyTorch, Numba and cuda.core
        value = getattr(handle, attribute, None)
        if value is not None:
            return int(getattr(value, "value", None) or value)
    protocol = getattr(handle, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    if hasattr(handle, "synchronize"):
        return 0  # Numba's default stream has no address
    raise TypeError(f"expected a stream or the address of one, got {type(handle).__name__}")
