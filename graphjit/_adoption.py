"""Arrays of other libraries as Arrays over the same memory."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from graphjit import backends
from graphjit._array import Array
from graphjit._aval import ArrayAval, array_aval
from graphjit._context import current_stream, default_device, stream_address
from graphjit._errors import DTypeError
from graphjit._layout import Layout, contiguous
from graphjit.backends.base import Device
from graphjit.kernel import frontend


def adopt(value: Any, device: Device | None = None) -> Array | None:
    """The array of another library as an Array over the same memory, without a copy.

    Parameters
    ----------
    value : object
        An Array, or anything with ``__cuda_array_interface__``; NumPy arrays on the CPU.
    device : Device, optional
        The device wanted; the default one if none is named.

    Returns
    -------
    Array or None
        None if there is nothing to adopt on that device without a copy.
    """
    if isinstance(value, Array):
        return value
    if isinstance(value, np.ndarray):
        device = device or default_device()
        if device.backend != "cpu":
            return None
        readonly = not value.flags.writeable
        aval, low, nbytes = _described(value.shape, value.strides, value.dtype, device, readonly)
        return _over(value.ctypes.data, aval, low, nbytes, value, None)
    try:
        interface = value.__cuda_array_interface__
    except (AttributeError, KeyError):  # a KeyError from a dict that gives its items as attributes
        return None
    descr = interface.get("descr") if interface["typestr"][1] == "V" else None
    dtype = np.dtype(descr or interface["typestr"])
    strides = interface.get("strides")
    address, readonly = interface["data"]
    aval, low, nbytes = _described(
        tuple(interface["shape"]),
        None if strides is None else tuple(strides),
        dtype,
        backends.get("cuda").devices()[0],
        bool(readonly),
    )
    return _over(address, aval, low, nbytes, value, _producer(value, interface))


def _producer(value: Any, interface: dict[str, Any]) -> Any:
    """The stream that work on an array must wait for."""
    mine = current_stream()
    if "stream" in interface:
        # None: no need to wait. 1 is the legacy default stream.
        given = interface["stream"]
        return mine if given is None else stream_address(0 if given == 1 else given)
    if hasattr(type(value), "__dlpack__"):
        # PyTorch and JAX say nothing in this interface, but let the stream that they are given
        # with the other protocol wait for theirs; the capsule itself isn't wanted.
        value.__dlpack__(stream=mine or 1)
    return mine


@functools.lru_cache(maxsize=1024)
def _described(
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: np.dtype[Any],
    device: Device,
    readonly: bool,
) -> tuple[ArrayAval, int, int]:
    """The aval of an array, its distance to its lowest address, and the bytes it spans."""
    if frontend.is_no_element(dtype):
        raise DTypeError(f"kernels don't take elements of dtype {dtype}")
    layout = Layout(shape, strides or contiguous(shape, dtype).strides, dtype)
    low, high = layout.extent
    return array_aval(layout, device, readonly), low, high - low


def _over(
    address: int, aval: ArrayAval, low: int, nbytes: int, owner: object, stream: Any
) -> Array:
    memory = backends.get(aval.device.backend).adopt(
        aval.device, address + low, nbytes, owner, stream
    )
    return Array(memory, address, aval)
