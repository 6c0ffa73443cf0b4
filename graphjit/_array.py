"""Array: device memory with a shape, a dtype and strides."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from graphjit import backends
from graphjit._aval import ArrayAval, array_aval
from graphjit._context import current_stream, current_trace, default_device
from graphjit._errors import DeviceError
from graphjit._layout import Layout, contiguous, layout_of
from graphjit._memory import GONE, Handle, Memory
from graphjit._scalars import NUMBERS, element
from graphjit._shaped import Shaped
from graphjit.backends.base import Device
from graphjit.kernel import frontend, numba_types

# DLPack's numbers: the host, CUDA, oneAPI.
_DLPACK_DEVICES = {"cpu": 1, "cuda": 2, "sycl": 14}
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _recorded(method: _Method) -> _Method:
    """Let a method of an array that a traced function closes over become part of the graph."""

    @functools.wraps(method)
    def wrapper(self: Array, *args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        if trace is None:
            return method(self, *args, **kwargs)
        return getattr(trace.lift(self), method.__name__)(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


class Array(Handle, Shaped):
    """Device memory with a shape, a dtype and strides.

    Made by `array`, `asarray`, `empty` and their kin, and returned by graphed functions. It can be
    handed to Numba kernels, inside and outside graphed functions, on every backend.

    Parameters
    ----------
    memory : Memory
        What keeps the elements alive.
    address : int
        Device address of the first element.
    aval : ArrayAval
        Shape, strides, dtype and device.

    Examples
    --------
    >>> import graphjit as gj
    >>> a = gj.array([[1.0, 2.0], [3.0, 4.0]])
    >>> a.shape, a[:, 1].copy_to_host()
    ((2, 2), array([2., 4.]))
    """

    __slots__ = ()
    _aval: ArrayAval

    def __init__(self, memory: Memory, address: int, aval: ArrayAval) -> None:
        Handle.__init__(self, memory, address, aval)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        self._refuse(f"NumPy functions ({ufunc.__name__}); copy_to_host() gives a NumPy array")

    @property
    def _layout(self) -> Layout:
        return self._aval.layout

    @property
    def _device(self) -> Device:
        return self._aval.device

    @property
    def _readonly(self) -> bool:
        return self._aval.readonly

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._device

    @_recorded
    def __getitem__(self, key: Any) -> Array:
        layout, offset = self._layout.index(key)
        return self._derived(layout, offset)

    @_recorded
    def __setitem__(self, key: Any, value: Any) -> None:
        if self._readonly:
            raise ValueError("assignment destination is read-only")
        target = self[key]
        backend = backends.get(self._device.backend)
        layout, stream = target._layout, current_stream()
        if isinstance(value, Array):
            if value._device != self._device:
                raise DeviceError(
                    f"cannot assign an array on {value._device} to one on {self._device}"
                )
            if value.dtype == target.dtype and value.shape == target.shape:
                source = value._for(stream)
                written = target._for(stream, True)
                backend.copy(self._device, source, value._layout, written, layout, stream)
                return
        if isinstance(value, NUMBERS):
            filled = element(value, target.dtype)
            backend.fill(self._device, filled, target._for(stream, True), layout, stream)
            return
        host = np.empty(target.shape, target.dtype)
        with np.errstate(over="ignore"):
            host[...] = value
        backend.upload(self._device, host, target._for(stream, True), layout, stream)

    @_recorded
    def copy(self) -> Array:
        stream = current_stream()
        source = self._for(stream)
        result = allocate(contiguous(self.shape, self.dtype), self._device)
        backend = backends.get(self._device.backend)
        backend.copy(self._device, source, self._layout, result._start, result._layout, stream)
        return result

    @_recorded
    def astype(self, dtype: Any) -> Array:
        """A copy with another element type, converted as NumPy converts.

        Parameters
        ----------
        dtype : dtype-like
            The new element type.

        Returns
        -------
        Array
        """
        if np.dtype(dtype) == self.dtype:
            return self.copy()
        return from_host(self.copy_to_host().astype(dtype), self._device)

    @_recorded
    def copy_to_host(
        self, out: np.ndarray[Any, Any] | None = None, stream: Any = 0
    ) -> np.ndarray[Any, Any]:
        """The elements as a fresh NumPy array, once they are computed.

        Parameters
        ----------
        out : numpy.ndarray, optional
            Written in place of a fresh array.
        stream : object
            Ignored; taken since Numba's arrays take it. The copy waits for all of the device.

        Returns
        -------
        numpy.ndarray
        """
        stream = current_stream()
        backend = backends.get(self._device.backend)
        host = backend.download(self._device, self._for(stream), self._layout, stream)
        if out is None:
            return host
        out[...] = host
        return out

    @_recorded
    def copy_to_device(self, source: Any, stream: Any = 0) -> None:
        """Overwrite the elements with those of another array.

        Parameters
        ----------
        source : array-like
            NumPy array or Array of the same shape, or one that NumPy broadcasts to it.
        stream : object
            Ignored; taken since Numba's arrays take it. Use `graphjit.stream`.

        Raises
        ------
        ValueError
            If the shapes don't fit, or this array is read-only.
        DeviceError
            If `source` is an Array on another device.
        """
        self[...] = source

    @_recorded
    def item(self) -> Any:
        """The only element, as a Python scalar.

        Returns
        -------
        bool, int, float or complex

        Raises
        ------
        ValueError
            If there is more than one element.
        """
        return self.copy_to_host().item()

    @_recorded
    def block_until_ready(self) -> Array:
        """Wait until the elements are computed.

        Returns
        -------
        Array
            This array.
        """
        self._memory.used_on(self._memory.stream, False)  # raises if it was closed
        backends.get(self._device.backend).synchronize(self._device)
        return self

    @_recorded
    def __float__(self) -> float:
        return float(self.item())

    @_recorded
    def __int__(self) -> int:
        return int(self.item())

    @_recorded
    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth value of an array with more than one element is ambiguous")
        return bool(self.item())

    @_recorded
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self._device.backend == "cpu" and copy is not True:
            host = self._host_view()
        elif copy is False:
            raise ValueError(f"an array on {self._device} can only be copied to the host")
        else:
            host = self.copy_to_host()
        if dtype is None or np.dtype(dtype) == self.dtype:
            return host
        if copy is False:
            raise ValueError(f"an array of {self.dtype} can't be one of {dtype} without a copy")
        return host.astype(dtype)

    def _host_view(self) -> np.ndarray[Any, Any]:
        """The elements in place, on the CPU; the view keeps the memory alive."""
        memory: Any = self._memory
        start = self._address
        memory.exported = True
        view = np.ndarray(
            self.shape, self.dtype, np.asarray(memory), start - memory.address, self.strides
        )
        if self._readonly:
            view.flags.writeable = False
        return view

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Numba's front end asks for it when a kernel closes over the array, on any backend: the
        # address is all it wants.
        if self._device.backend != "cuda" and not frontend.lowering():
            raise AttributeError(f"an array on {self._device} has no __cuda_array_interface__")
        trace = current_trace()
        if trace is not None and not frontend.lowering():
            trace.lift(self)._foreign()
        self._memory.exported = True
        return self._interface()

    def _interface(self) -> dict[str, Any]:
        """The description of this array in version 3 of the CUDA array interface."""
        start = self._address
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (start if self.size else 0, self._readonly),
            # 1 is the legacy default stream.
            "stream": self._memory.stream or 1,
        }

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        if self._device.backend != "sycl":
            raise AttributeError(f"an array on {self._device} has no __sycl_usm_array_interface__")
        trace = current_trace()
        if trace is not None:
            trace.lift(self)._foreign()
        backend: Any = backends.get("sycl")
        stream = self._memory.stream
        start = self._for(stream)
        self._memory.exported = True
        return cast("dict[str, Any]", backend.describe(self, start, stream))

    @_recorded
    def __dlpack__(self, **options: Any) -> Any:
        stream = self._memory.stream
        self._for(stream)
        self._memory.exported = True
        return backends.get(self._device.backend).export_dlpack(self, stream, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind = _DLPACK_DEVICES[self._device.backend]
        return kind, 0 if self._device.backend == "cpu" else self._device.index

    @property
    def _numba_type_(self) -> Any:
        return numba_types.array_type(self._layout, self._readonly)

    @_recorded
    def __reduce__(self) -> Any:
        return from_host, (self.copy_to_host(),)

    @_recorded
    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.copy()

    def __repr__(self) -> str:
        if current_trace() is not None:
            # Numba prints what a kernel closes over; that must not read the device.
            return f"<graphjit.Array {self._layout} on {self._device}>"
        values = repr(self.copy_to_host())
        return f"graphjit.{values[0].upper()}{values[1:-1]}, device='{self._device}')"

    @_recorded
    def _derived(self, layout: Layout, offset: int) -> Array:
        aval = array_aval(layout, self._device, self._readonly)
        return Array(self._memory, self._address + offset, aval)

    def _for(self, stream: Any, written: bool = False) -> int:
        """Address of the first element, for work queued on a stream from now on."""
        self._memory.used_on(stream, written)
        return self._start

    def close(self) -> None:
        """Free the memory now, for this array and every view of it; a second call does nothing.

        Work that was queued before still has it. Using the array later raises ClosedError. Calls
        on other threads that use it must be over.
        """
        if self._memory.stream is not GONE:
            self._lose("this array was closed")


def allocate(layout: Layout, device: Device | None = None) -> Array:
    """An array of that layout, uninitialised, on the default device if none is named."""
    device = device or default_device()
    numba_types.array_type(layout)  # refuse what no kernel could take, before there is memory
    low, high = layout.extent
    memory = backends.get(device.backend).allocate(device, high - low, current_stream())
    return Array(memory, memory.address - low, array_aval(layout, device))


def from_host(value: np.ndarray[Any, Any], device: Device | None = None) -> Array:
    """A copy of a host array, in fresh memory of the same order."""
    result = allocate(contiguous(value.shape, value.dtype, layout_of(value).compact_order), device)
    backend = backends.get(result.device.backend)
    backend.upload(result.device, value, result._start, result._layout, current_stream())
    return result
