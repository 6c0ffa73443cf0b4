"""Arrays of other libraries as Arrays over the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphjit import backends
from graphjit._array import Array
from graphjit._aval import array_aval
from graphjit._context import default_device
from graphjit._layout import Layout, contiguous, layout_of
from graphjit.backends.base import Device


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
        return _over(value.ctypes.data, layout_of(value), device, value, not value.flags.writeable)
    try:
        interface = value.__cuda_array_interface__
    except (AttributeError, KeyError):  # a KeyError from a dict that gives its items as attributes
        return None
    dtype = np.dtype(interface["typestr"])
    if dtype.kind == "V" and interface.get("descr"):
        dtype = np.dtype(interface["descr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or contiguous(shape, dtype).strides
    address, readonly = interface["data"]
    cuda_device = backends.get("cuda").devices()[0]
    return _over(address, Layout(shape, tuple(strides), dtype), cuda_device, value, bool(readonly))


def _over(address: int, layout: Layout, device: Device, owner: object, readonly: bool) -> Array:
    low, high = layout.extent
    memory = backends.get(device.backend).adopt(device, address + low, high - low, owner)
    return Array(memory, address, array_aval(layout, device, readonly))
