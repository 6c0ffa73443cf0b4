"""CPUBackend: host memory, and Schedules as native programs."""

from __future__ import annotations

import functools
import platform
from typing import Any

import numpy as np

from graphjit._device_control import every
from graphjit._errors import UnsupportedKernelError
from graphjit._layout import Layout
from graphjit._memory import Allocator, Memory
from graphjit._options import Options
from graphjit.backends.base import Device
from graphjit.backends.cpu.memory import AdoptedMemory, HostAllocator, HostMemory, view_at
from graphjit.backends.executable import Executable
from graphjit.schedule.schedule import Schedule


class CPUBackend:
    """Runs graphs on the host."""

    name = "cpu"
    contracts = False

    @functools.cache  # noqa: B019 - one backend a process
    def devices(self) -> tuple[Device, ...]:
        """The CPU."""
        return (Device("cpu", 0, platform.processor() or platform.machine()),)

    def allocator(self, device: Device, nbytes: int) -> Allocator:
        """What makes memory of one size."""
        return HostAllocator(nbytes)

    def allocate(self, device: Device, nbytes: int, stream: Any = None) -> Memory:
        """Uninitialised memory."""
        return HostMemory(nbytes)

    def adopt(
        self, device: Device, address: int, nbytes: int, owner: object, stream: Any = None
    ) -> Memory:
        """Memory that somebody else owns."""
        return AdoptedMemory(address, nbytes, owner)

    def upload(
        self,
        device: Device,
        source: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Copy a host array to `target`."""
        view_at(target, layout)[...] = source

    def download(
        self, device: Device, source: int, layout: Layout, stream: Any
    ) -> np.ndarray[Any, Any]:
        """A fresh copy of the elements at `source`."""
        return view_at(source, layout).copy(order="C")

    def copy(
        self,
        device: Device,
        source: int,
        source_layout: Layout,
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Copy elements, as NumPy's assignment."""
        view_at(target, layout)[...] = view_at(source, source_layout)

    def fill(
        self,
        device: Device,
        value: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Set every element, as NumPy's assignment."""
        view_at(target, layout)[...] = value

    def export_dlpack(self, array: Any, stream: Any, options: dict[str, Any]) -> Any:
        """The DLPack capsule of the array's NumPy view."""
        return np.asarray(array).__dlpack__(**options)

    def check(self, schedule: Schedule) -> None:
        """Refuse what the CPU can't run."""
        from graphjit.backends.cpu.steps import check_node

        for node in every(schedule.nodes):
            try:
                check_node(schedule, node)
            except (UnsupportedKernelError, ValueError) as error:
                raise UnsupportedKernelError(
                    f"{error} (on the cpu backend, at {node.location})"
                ) from None

    def build(self, schedule: Schedule, device: Device, options: Options) -> Executable:
        """Compile the kernels and lay out the program."""
        from graphjit.backends.cpu.executable import CPUExecutable

        return CPUExecutable(schedule, options.inputs)

    def synchronize(self, device: Device) -> None:
        """Nothing: calls return when their work is done."""
