"""CPUBackend: host memory, and Schedules as native programs."""

from __future__ import annotations

import functools
import math
import platform
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphjit._errors import UnsupportedKernelError
from graphjit._graph import Copy, Fill, Launch, Node
from graphjit._layout import Layout
from graphjit.backends.base import Device, Memory
from graphjit.backends.cpu.memory import AdoptedMemory, HostMemory
from graphjit.kernel.access import fast_axis
from graphjit.kernel.packing import ParamImage
from graphjit.schedule.schedule import Schedule

if TYPE_CHECKING:
    from graphjit.backends.cpu.codegen import NativeKernel


class CPUBackend:
    """Runs graphs on the host."""

    name = "cpu"

    @functools.cache  # noqa: B019 - one backend a process
    def devices(self) -> tuple[Device, ...]:
        """The CPU."""
        return (Device("cpu", 0, platform.processor() or platform.machine()),)

    def allocate(self, device: Device, nbytes: int, stream: Any = None) -> Memory:
        """Uninitialised memory."""
        return HostMemory(nbytes)

    def adopt(self, device: Device, address: int, nbytes: int, owner: object) -> Memory:
        """Memory that somebody else owns."""
        return AdoptedMemory(address, nbytes, owner)

    def upload(
        self, source: np.ndarray[Any, Any], target: int, layout: Layout, stream: Any
    ) -> None:
        """Copy a host array to `target`."""
        _view(target, layout)[...] = source

    def download(self, source: int, layout: Layout, stream: Any) -> np.ndarray[Any, Any]:
        """A fresh copy of the elements at `source`."""
        return _view(source, layout).copy(order="C")

    def copy(
        self, source: int, source_layout: Layout, target: int, layout: Layout, stream: Any
    ) -> None:
        """Copy elements, as NumPy's assignment."""
        _view(target, layout)[...] = _view(source, source_layout)

    def fill(self, value: np.ndarray[Any, Any], target: int, layout: Layout, stream: Any) -> None:
        """Set every element, as NumPy's assignment."""
        _view(target, layout)[...] = value

    def export_dlpack(self, array: Any, stream: Any, options: dict[str, Any]) -> Any:
        """The DLPack capsule of the array's NumPy view."""
        return np.asarray(array).__dlpack__(**options)

    def check(self, schedule: Schedule) -> None:
        """Refuse what the CPU can't run."""
        from graphjit.backends.cpu.codegen import check_kernel

        for node in schedule.graph.nodes:
            try:
                if isinstance(node, Launch):
                    check_kernel(node.kernel)
                    _native(schedule, node)  # what only code generation finds out
                else:
                    _memory_step(schedule, node)
            except (UnsupportedKernelError, ValueError) as error:
                raise UnsupportedKernelError(
                    f"{error} (on the cpu backend, at {node.location})"
                ) from None

    def build(self, schedule: Schedule, device: Device) -> CPUExecutable:
        """Compile the kernels and lay out the program."""
        return CPUExecutable(schedule)

    def synchronize(self, device: Device) -> None:
        """Nothing: calls return when their work is done."""


class CPUExecutable:
    """A Schedule as one native program.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    """

    def __init__(self, schedule: Schedule) -> None:
        from graphjit.backends.cpu.program import Program

        self._schedule = schedule
        self._arena = HostMemory(schedule.arena.nbytes)
        self._kernels: list[Any] = []
        self._program = Program([self._step(node) for node in schedule.graph.nodes], schedule.slots)
        self._slots = struct.Struct(schedule.slot_format)

    def run(self, pointers: Sequence[int], scalars: Sequence[Any], stream: Any) -> None:
        """Replay once; returns when the work is done."""
        values = self._schedule.scalar_values(scalars)
        self._program.run(self._slots, (*pointers, self._arena.address, *values))

    def close(self) -> None:
        """Free the program."""
        self._program.close()

    def _step(self, node: Node) -> Any:
        from graphjit.backends.cpu.program import Step

        schedule = self._schedule
        if not isinstance(node, Launch):
            return _memory_step(schedule, node)
        image, native = _native(schedule, node)
        self._kernels.append(native)
        threads = math.prod(node.block)
        return Step(
            native.address,
            image,
            node.block,
            node.grid,
            node.shared_bytes,
            native.scratch_bytes(threads, node.shared_bytes),
            node.kernel.name,
            math.prod(node.grid) * threads,
        )


def _native(schedule: Schedule, node: Launch) -> tuple[ParamImage, NativeKernel]:
    """A launch's parameters and its kernel as native code; compiled once."""
    from graphjit.backends.cpu.codegen import compile_kernel

    image = schedule.image(node)
    axis = fast_axis(node.kernel.accesses, image.integers(), node.block)
    return image, compile_kernel(node.kernel, axis)


def _memory_step(schedule: Schedule, node: Copy | Fill) -> Any:
    from graphjit.backends.cpu.memory_kernels import copy_step, fill_step

    if isinstance(node, Copy):
        source, target = node.source.view, node.target.view
        return copy_step(
            schedule.address(target), target.layout, schedule.address(source), source.layout
        )
    view = node.target.view
    return fill_step(schedule.address(view), view.layout, schedule.fill_value(node))


def _view(address: int, layout: Layout) -> np.ndarray[Any, Any]:
    low, high = layout.extent
    memory = AdoptedMemory(address + low, high - low, None)
    return np.ndarray(layout.shape, layout.dtype, np.asarray(memory), -low, layout.strides)
