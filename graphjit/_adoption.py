"""Arrays of other libraries as Arrays over the same memory."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from graphjit import backends
from graphjit._array import Array
from graphjit._aval import ArrayAval, array_aval
from graphjit._context import current_stream, default_device, stream_address
from graphjit._errors import ArgumentError, DeviceError, DTypeError
from graphjit._layout import Layout, contiguous, layout_of
from graphjit._location import called_at
from graphjit._memory import Memory
from graphjit.backends.base import Device
from graphjit.kernel import numba_types

# Device types of DLPack: CUDA's memory, and managed memory; oneAPI's.
_DLPACK_GPUS = (2, 13)
_DLPACK_ONEAPI = 14
# A KeyError from a dict that gives its items as attributes.
_NO_ATTRIBUTE = (AttributeError, KeyError)


def adopt(value: Any, device: Device | None = None) -> Array | None:
    """The array of another library as an Array over the same memory, without a copy.

    Parameters
    ----------
    value : object
        An Array, or anything with ``__cuda_array_interface__``, ``__sycl_usm_array_interface__``
        or DLPack; NumPy arrays on the CPU.
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
        base = value.base
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, Memory):
            # A view of an Array's: over the same memory, or owners of owners would never end.
            return Array(base, value.ctypes.data, aval)
        return _over(value.ctypes.data, aval, low, nbytes, value, None)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _adopt_tensor(torch, value)
    try:
        interface = value.__cuda_array_interface__
    except _NO_ATTRIBUTE:
        return _adopt_from_elsewhere(value)
    descr = interface.get("descr") if interface["typestr"][1] == "V" else None
    strides = interface.get("strides")
    address, readonly = interface["data"]
    aval, low, nbytes = _described(
        tuple(interface["shape"]),
        None if strides is None else tuple(strides),
        np.dtype(descr or interface["typestr"]),
        _gpu(),
        bool(readonly),
    )
    stream = current_stream()
    if interface.get("stream") is not None:  # None: no need to wait
        stream = stream_address(interface["stream"])
    return _over(address, aval, low, nbytes, value, stream)


def _adopt_from_elsewhere(value: Any) -> Array | None:
    """An array that CUDA's interface doesn't describe."""
    try:
        interface = value.__sycl_usm_array_interface__
    except _NO_ATTRIBUTE:
        return _adopt_dlpack(value)
    return _adopt_usm(value, interface)


def _adopt_usm(value: Any, interface: dict[str, Any]) -> Array:
    """An array of dpnp or dpctl."""
    backend: Any = backends.get("sycl")
    queue = interface["syclobj"]
    device = backend.device_of(queue)
    if device is None:
        raise DeviceError(
            f"an array is in a SYCL context of its own, on {queue.sycl_device.name.strip()}; make "
            f"it on a queue of the device's default context{called_at()}"
        )
    stream = stream_address(queue)
    dtype = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    address, readonly = interface["data"]
    aval, low, nbytes = _described(
        tuple(interface["shape"]),
        None if strides is None else tuple(step * dtype.itemsize for step in strides),
        dtype,
        device,
        bool(readonly),
    )
    return _over(
        address + interface.get("offset", 0) * dtype.itemsize, aval, low, nbytes, value, stream
    )


def _adopt_dlpack(value: Any) -> Array | None:
    """An array on a GPU that only DLPack describes; its owner lets our stream wait for its own."""
    kind = getattr(type(value), "__dlpack_device__", None)
    place = kind(value)[0] if kind is not None else None
    if place == _DLPACK_ONEAPI:
        from dpnp.tensor import from_dlpack

        array = from_dlpack(value)
        return _adopt_usm(array, array.__sycl_usm_array_interface__)
    if place not in _DLPACK_GPUS:
        return None
    from cuda.core.utils import StridedMemoryView

    stream = current_stream()
    view = StridedMemoryView.from_dlpack(value, stream_ptr=stream or 1)
    dtype = np.dtype(view.dtype)
    strides = view.strides and tuple(n * dtype.itemsize for n in view.strides)
    aval, low, nbytes = _described(tuple(view.shape), strides, dtype, _gpu(), view.readonly)
    return _over(view.ptr, aval, low, nbytes, view, stream)


def _adopt_tensor(torch: Any, tensor: Any) -> Array | None:
    """A PyTorch tensor, described in some µs; either protocol takes it 15 and more."""
    if not tensor.is_cuda:
        return None
    if tensor.requires_grad or tensor.layout is not torch.strided:
        problem = "requires grad; pass x.detach()" if tensor.requires_grad else "isn't strided"
        raise ArgumentError(f"a PyTorch tensor {problem}{called_at()}")
    if tensor.is_conj() or tensor.is_neg():
        raise ArgumentError(
            "a PyTorch tensor is a lazily conjugated or negated view; pass x.resolve_conj() or "
            f"x.resolve_neg(){called_at()}"
        )
    dtype = _tensor_dtypes(torch).get(tensor.dtype)
    if dtype is None:
        raise DTypeError(f"kernels don't take PyTorch tensors of {tensor.dtype}{called_at()}")
    size = dtype.itemsize
    strides = tuple([stride * size for stride in tensor.stride()])
    aval, low, nbytes = _described(tuple(tensor.shape), strides, dtype, _gpu(), False)
    theirs = _raw_stream(torch)(tensor.get_device())
    stream = stream_address(theirs) if theirs else None
    return _over(tensor.data_ptr(), aval, low, nbytes, tensor, stream)


@functools.cache
def _tensor_dtypes(torch: Any) -> dict[Any, np.dtype[Any]]:
    """NumPy's names of PyTorch's element types."""
    names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    names += " complex64 complex128"
    return {getattr(torch, n): np.dtype(n) for n in names.split() if hasattr(torch, n)}


@functools.cache
def _raw_stream(torch: Any) -> Any:
    """What gives the current stream of a GPU: as PyTorch's compiler asks, or ten times slower."""
    return getattr(
        torch._C,
        "_cuda_getCurrentRawStream",
        lambda index: torch.cuda.current_stream(index).cuda_stream,
    )


@functools.cache
def _gpu() -> Device:
    found = backends.get("cuda").devices()
    if not found:
        raise DeviceError(f"an argument is an array on a GPU, and there is none here{called_at()}")
    return found[0]


@functools.lru_cache(maxsize=1024)
def _described(
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: np.dtype[Any],
    device: Device,
    readonly: bool,
) -> tuple[ArrayAval, int, int]:
    """The aval of an array, its distance to its lowest address, and the bytes it spans."""
    if numba_types.is_no_element(dtype):
        raise DTypeError(f"kernels don't take elements of dtype {dtype}{called_at()}")
    layout = Layout(shape, strides or contiguous(shape, dtype).strides, dtype)
    low, high = layout.extent
    return array_aval(layout, device, readonly), low, high - low


def host_aval(host: Any, device: Device) -> ArrayAval:
    """The aval of a NumPy array or structured scalar for use on a device."""
    if isinstance(host, np.void):
        return array_aval(Layout((), (), host.dtype), device, record=True)
    return array_aval(layout_of(host), device, not host.flags.writeable)


def _over(
    address: int, aval: ArrayAval, low: int, nbytes: int, owner: object, stream: Any
) -> Array:
    memory = backends.get(aval.device.backend).adopt(
        aval.device, address + low, nbytes, owner, stream
    )
    return Array(memory, address, aval)
