"""CUDABackend: stream-ordered device memory, copies, and Schedules as CUDA graphs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from graphjit._cached_property import cached_property
from graphjit._device_control import every
from graphjit._errors import DeviceError, UnsupportedKernelError
from graphjit._layout import Layout, contiguous
from graphjit._memory import Allocator, Memory
from graphjit._nodes import Launch, View
from graphjit._options import Options
from graphjit.backends.base import Device
from graphjit.backends.executable import Executable
from graphjit.kernel import frontend
from graphjit.kernel.packing import Address, pack_launch
from graphjit.schedule.schedule import Schedule


class CUDABackend:
    """Runs graphs on NVIDIA GPUs."""

    name = "cuda"
    contracts = True

    def __init__(self) -> None:
        self._pools: dict[int, Any] = {}

    @functools.cache  # noqa: B019 - one backend a process
    def devices(self) -> tuple[Device, ...]:
        """The first CUDA device; none where there is no driver."""
        if not frontend.driver_available():
            return ()
        from numba import cuda

        return (Device("cuda", 0, _name(cuda.gpus[0].name)),)

    @cached_property
    def _has_others(self) -> bool:
        """Whether there are GPUs that graphjit doesn't use, but other libraries may."""
        from numba import cuda

        return len(cuda.gpus) > 1

    def allocator(self, device: Device, nbytes: int) -> Allocator:
        """What makes memory of one size."""
        from graphjit.backends.cuda.memory import DeviceAllocator

        return DeviceAllocator(self._pool(device), nbytes)

    def allocate(self, device: Device, nbytes: int, stream: Any = None) -> Memory:
        """Uninitialised memory, ready on the stream."""
        memory: Memory = self._pool(device).take(nbytes, stream)
        return memory

    def _pool(self, device: Device) -> Any:
        pool = self._pools.get(device.index)
        if pool is None:
            from graphjit.backends.cuda.memory import Pool

            pool = self._pools.setdefault(device.index, Pool(device.index))
        return pool

    def adopt(
        self, device: Device, address: int, nbytes: int, owner: object, stream: Any = None
    ) -> Memory:
        """Memory that somebody else owns; raises DeviceError if it is another GPU's."""
        from graphjit.backends.cuda.memory import AdoptedMemory, gpu_of

        if self._has_others and nbytes and (gpu := gpu_of(address)) != device.index:
            raise DeviceError(
                f"an array is on GPU {gpu}, and graphjit uses GPU 0 only; move the array, or make "
                "that GPU the first one in CUDA_VISIBLE_DEVICES"
            )
        return AdoptedMemory(address, nbytes, owner, stream, device.index)

    def upload(
        self,
        device: Device,
        source: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Copy a host array to `target`, in stream order."""
        from cuda.bindings import driver

        from graphjit.backends.cuda.driver import activate, check

        if layout.size == 0:
            return
        activate(device.index)
        host = np.asarray(source, order="F" if layout.order == "F" else "C")
        if layout.is_contiguous and host.strides == layout.strides:
            # From pageable memory this returns when the source has been read.
            check(
                driver.cuMemcpyHtoDAsync(target, host.ctypes.data, host.nbytes, stream or 0),
                "copying to the device",
            )
            return
        staging = self.allocate(device, host.nbytes, stream)
        plain = contiguous(host.shape, host.dtype)
        self.upload(
            device, np.ascontiguousarray(host).reshape(host.shape), staging.address, plain, stream
        )
        self.copy(device, staging.address, plain, target, layout, stream)

    def download(
        self, device: Device, source: int, layout: Layout, stream: Any
    ) -> np.ndarray[Any, Any]:
        """A fresh host copy of the elements at `source`, once all work on the device is done."""
        from cuda.bindings import driver

        from graphjit.backends.cuda.driver import activate, check
        from graphjit.backends.cuda.failures import raise_failures

        host = np.empty(layout.shape, layout.dtype)
        if layout.size == 0:
            return host
        activate(device.index)
        plain = contiguous(layout.shape, layout.dtype)
        staging = None
        if layout.strides != plain.strides and layout.order != "C":
            staging = self.allocate(device, plain.nbytes, stream)
            self.copy(device, source, layout, staging.address, plain, stream)
            source = staging.address
        # The elements may come from any stream, this thread's or another's.
        check(driver.cuCtxSynchronize(), "waiting for the device")
        raise_failures()
        check(driver.cuMemcpyDtoH(host.ctypes.data, source, host.nbytes), "copying to the host")
        del staging
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
        """Copy elements on the device, in stream order."""
        from graphjit.backends.memory_kernels import copy_launch

        if layout.size == 0:
            return
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
        """Set every element, in stream order."""
        from cuda.bindings import driver

        from graphjit.backends.cuda.driver import activate, check

        if layout.size == 0:
            return
        activate(device.index)
        cells = np.frombuffer(value.tobytes(), "u1")
        if layout.is_contiguous and not cells.any():
            cleared = driver.cuMemsetD8Async(target, 0, layout.nbytes, stream or 0)
            check(cleared, "clearing an array")
            return
        one = self.allocate(device, value.nbytes, stream)
        self.upload(device, value, one.address, contiguous((), value.dtype), stream)
        repeated = Layout(layout.shape, (0,) * len(layout.shape), layout.dtype)
        self.copy(device, one.address, repeated, target, layout, stream)

    def export_dlpack(self, array: Any, stream: Any, options: dict[str, Any]) -> Any:
        """The DLPack capsule; the consumer's stream waits for `stream`."""
        from cuda.core.utils import StridedMemoryView

        from graphjit.backends.cuda.driver import activate
        from graphjit.backends.cuda.memory import order

        activate(array._device.index)
        options = dict(options)
        consumer = options.pop("stream", None)
        if consumer != -1:
            # 1 is the legacy default stream, as None is; 2 the thread's own.
            order(stream, None if consumer == 1 else consumer)
        # -1: the order is settled above.
        view = StridedMemoryView.from_cuda_array_interface(array, stream_ptr=-1)
        return view.__dlpack__(stream=-1, **options)

    def check(self, schedule: Schedule) -> None:
        """Refuse kernels that can't be in loops and branches; all others are CUDA kernels."""
        for node in every(schedule.nodes):
            for inside in every(body for bodies in getattr(node, "bodies", ()) for body in bodies):
                if isinstance(inside, Launch) and inside.kernel.cooperative:
                    raise UnsupportedKernelError(
                        f"kernel {inside.kernel.name} synchronises its whole grid, and a GPU can't "
                        f"do that in a loop or branch that it decides (at {inside.location})"
                    )

    def build(self, schedule: Schedule, device: Device, options: Options) -> Executable:
        """Build and instantiate the CUDA graph."""
        from graphjit.backends.cuda.executable import CUDAExecutable

        allocate = functools.partial(self.allocate, device)
        copy = functools.partial(self.copy, device)
        download = functools.partial(self.download, device)
        return CUDAExecutable(schedule, device, allocate, copy, download, options)

    def synchronize(self, device: Device) -> None:
        """Wait for all streams of the device."""
        from cuda.bindings import driver

        from graphjit.backends.cuda.driver import activate, check
        from graphjit.backends.cuda.failures import raise_failures

        activate(device.index)
        check(driver.cuCtxSynchronize(), "waiting for the device")
        raise_failures()

    def _launch(self, device: Device, launch: Any, addresses: tuple[int, ...], stream: Any) -> None:
        from cuda.bindings import driver

        from graphjit.backends.cuda import driver as cuda_driver
        from graphjit.backends.cuda.image import BoundImage

        cuda_driver.activate(device.index)
        kernel = frontend.load(launch.kernel)
        packed = pack_launch(
            launch.kernel,
            launch.operands,
            lambda view: Address(view.buffer, view.offset),
            lambda ref, type_: 0,
        )
        image = BoundImage(packed, kernel.order)
        image.bind(list(addresses))
        function = cuda_driver.check(
            driver.cuKernelGetFunction(kernel.kernel.handle), "loading a kernel"
        )
        cuda_driver.launch(
            function, launch.grid, launch.block, 0, stream, image.address, launch.kernel.name
        )


def _name(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
