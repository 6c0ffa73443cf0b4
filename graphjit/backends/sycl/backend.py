"""SYCLBackend: USM, copies, and Schedules as SYCL graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphjit._device_control import every
from graphjit._errors import DeviceError, UnsupportedKernelError
from graphjit._layout import Layout, contiguous
from graphjit._memory import Allocator, Memory
from graphjit._nodes import Launch, View
from graphjit._options import Options
from graphjit.backends.base import Device
from graphjit.backends.executable import Executable
from graphjit.backends.memory_kernels import copy_launch
from graphjit.backends.sycl import runtime
from graphjit.kernel.packing import Address
from graphjit.schedule.schedule import Schedule


class SYCLBackend:
    """Runs graphs on SYCL devices."""

    name = "sycl"
    contracts = False

    def __init__(self) -> None:
        self._pools: dict[int, Any] = {}
        # The queues of each device, besides its own, that work was given to.
        self._queues: dict[int, dict[int, Any]] = {}

    def devices(self) -> tuple[Device, ...]:
        """Dpctl's devices; none where it isn't installed, or finds none."""
        return tuple(
            Device("sycl", index, device.name.strip())
            for index, device in enumerate(runtime.devices())
        )

    def choose(self, wanted: str) -> tuple[Device, ...]:
        """The device that dpctl's filter string names; all, if it names none.

        Raises
        ------
        DeviceError
            If there is no such device, or dpctl can't be imported.
        """
        if not wanted:
            found = self.devices()
            if not found and runtime.is_installed():
                runtime.dpctl()
            return found
        dpctl = runtime.dpctl()
        try:
            chosen = dpctl.SyclDevice(wanted)
        except (ValueError, dpctl.SyclDeviceCreationError):
            names = ", ".join(each.get_filter_string() for each in runtime.devices())
            raise DeviceError(
                f"no SYCL device is {wanted!r}; there are {names or 'none'}"
            ) from None
        return (self.devices()[runtime.devices().index(chosen)],)

    def allocator(self, device: Device, nbytes: int) -> Allocator:
        """What makes memory of one size."""
        from graphjit.backends.sycl.memory import USMAllocator

        return USMAllocator(self._pool(device), nbytes)

    def allocate(self, device: Device, nbytes: int, stream: Any = None) -> Memory:
        """Uninitialised memory, ready on the queue."""
        memory: Memory = self._pool(device).take(nbytes, stream)
        return memory

    def adopt(
        self, device: Device, address: int, nbytes: int, owner: object, stream: Any = None
    ) -> Memory:
        """Memory that somebody else owns."""
        from graphjit.backends.sycl.memory import AdoptedMemory

        return AdoptedMemory(address, nbytes, owner, stream, runtime.address(device.index))

    def device_of(self, queue: Any) -> Device | None:
        """The device of a dpctl queue; None if graphs can't use memory of its context."""
        devices = runtime.devices()
        if queue.sycl_device not in devices:
            return None
        index = devices.index(queue.sycl_device)
        if queue.sycl_context != runtime.queue(index).sycl_context:
            return None
        return self.devices()[index]

    def upload(
        self,
        device: Device,
        source: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Copy a host array to `target`, in the order of the queue; returns when it is read."""
        from graphjit.backends.sycl.memory import meetings

        if layout.size:
            self._upload(device, source, target, layout, stream)
        meetings.end()

    def _upload(
        self,
        device: Device,
        source: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        from graphjit.backends.sycl import shim

        host = np.asarray(source, order="F" if layout.order == "F" else "C")
        if layout.is_contiguous and host.strides == layout.strides:
            queue = stream or runtime.address(device.index)
            shim.memcpy(queue, target, host.ctypes.data, host.nbytes, True)
            return
        staging = self.allocate(device, host.nbytes, stream)
        plain = contiguous(host.shape, host.dtype)
        self._upload(
            device, np.ascontiguousarray(host).reshape(host.shape), staging.address, plain, stream
        )
        self._copy(device, staging.address, plain, target, layout, stream)

    def download(
        self, device: Device, source: int, layout: Layout, stream: Any
    ) -> np.ndarray[Any, Any]:
        """A fresh host copy of the elements at `source`, once the queue is done."""
        from graphjit.backends.sycl import shim
        from graphjit.backends.sycl.memory import meetings

        host = np.empty(layout.shape, layout.dtype)
        if layout.size == 0:
            return host
        queue = stream or runtime.address(device.index)
        plain = contiguous(layout.shape, layout.dtype)
        staging = None
        if layout.strides != plain.strides and layout.order != "C":
            staging = self.allocate(device, plain.nbytes, stream)
            self._copy(device, source, layout, staging.address, plain, stream)
            source = staging.address
        shim.memcpy(queue, host.ctypes.data, source, host.nbytes, True)
        del staging
        meetings.end()
        return host

    def copy(
        self,
        device: Device,
        source: int,
        source_layout: Layout,
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Copy elements on the device, in the order of the queue."""
        from graphjit.backends.sycl.memory import meetings

        if layout.size:
            self._copy(device, source, source_layout, target, layout, stream)
        meetings.end()

    def _copy(
        self,
        device: Device,
        source: int,
        source_layout: Layout,
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        low, high = source_layout.extent
        target_low, target_high = layout.extent
        if source + low < target + target_high and target + target_low < source + high:
            staging = self.allocate(device, layout.nbytes, stream)
            plain = contiguous(layout.shape, layout.dtype)
            self._launch(
                device,
                copy_launch(View(0, 0, source_layout), View(1, 0, plain)),
                (source, staging.address),
                stream,
            )
            source, source_layout = staging.address, plain
        launch = copy_launch(View(0, 0, source_layout), View(1, 0, layout))
        self._launch(device, launch, (source, target), stream)

    def fill(
        self,
        device: Device,
        value: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Set every element, in the order of the queue."""
        from graphjit.backends.sycl.memory import meetings

        if layout.size:
            self._fill(device, value, target, layout, stream)
        meetings.end()

    def _fill(
        self,
        device: Device,
        value: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        from graphjit.backends.sycl import shim

        cells = np.frombuffer(value.tobytes(), "u1")
        if layout.is_contiguous and not cells.any():
            shim.memset(stream or runtime.address(device.index), target, 0, layout.nbytes)
            return
        one = self.allocate(device, value.nbytes, stream)
        self._upload(device, value, one.address, contiguous((), value.dtype), stream)
        repeated = Layout(layout.shape, (0,) * len(layout.shape), layout.dtype)
        self._copy(device, one.address, repeated, target, layout, stream)

    def describe(self, array: Any, start: int, stream: Any) -> dict[str, Any]:
        """What version 1 of the SYCL USM array interface says of an array."""
        layout = array._layout
        size = layout.dtype.itemsize
        for what, found in (
            ("strides that aren't whole elements", any(s % size for s in layout.strides)),
            ("negative strides", layout.extent[0] < 0),
        ):
            if found:
                raise ValueError(
                    f"an array of {layout.dtype} with strides of {layout.strides} bytes can't be "
                    f"handed to dpnp, which doesn't take {what}; hand it a copy()"
                )
        owner = getattr(stream, "owner", None) or runtime.dpnp_queue(array._device.index)
        array._memory.share(owner)
        return {
            "version": 1,
            "shape": layout.shape,
            "strides": tuple(step // size for step in layout.strides),
            "typestr": layout.dtype.str,
            "data": (start, array._readonly),
            "offset": 0,
            "syclobj": owner,
        }

    def export_dlpack(self, array: Any, stream: Any, options: dict[str, Any]) -> Any:
        """The DLPack capsule, made by dpctl."""
        from dpnp.tensor import asarray

        options = dict(options)
        options.pop("stream", None)
        return asarray(array, copy=False).__dlpack__(**options)

    def check(self, schedule: Schedule) -> None:
        """Refuse what SPIR-V can't express; touches no device."""
        from graphjit.backends.sycl.codegen import compile_kernel

        for node in every(schedule.nodes):
            if isinstance(node, Launch):
                try:
                    compile_kernel(node.kernel)
                except UnsupportedKernelError as error:
                    raise UnsupportedKernelError(f"{error} (at {node.location})") from None

    def build(self, schedule: Schedule, device: Device, options: Options) -> Executable:
        """Build the SYCL graphs."""
        from graphjit.backends.sycl.executable import SYCLExecutable

        return SYCLExecutable(schedule, device, self, options.inputs)

    def synchronize(self, device: Device) -> None:
        """Wait for the device's queue, and those that were used."""
        from graphjit.backends.sycl import shim

        used = self._queues.pop(device.index, {})
        for queue in (runtime.address(device.index), *used):
            shim.wait(queue)

    def note(self, device: Device, stream: Any) -> None:
        """Say that work was given to a queue that isn't the device's own."""
        self._queues.setdefault(device.index, {})[int(stream)] = stream

    def _pool(self, device: Device) -> Any:
        pool = self._pools.get(device.index)
        if pool is None:
            from graphjit.backends.sycl.memory import Pool

            pool = self._pools.setdefault(device.index, Pool(device.index))
        return pool

    def _launch(self, device: Device, launch: Any, addresses: tuple[int, ...], stream: Any) -> None:
        from graphjit.backends.sycl.builder import launch_once

        index = device.index
        launch_once(
            launch,
            lambda view: Address(view.buffer, view.offset),
            addresses,
            index,
            stream or runtime.address(index),
        )
