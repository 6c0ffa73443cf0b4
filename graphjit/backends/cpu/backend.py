"""CPUBackend: host memory, and Schedules as native programs."""

from __future__ import annotations

import functools
import math
import platform
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphjit._errors import UnsupportedKernelError
from graphjit._graph import Copy, Fill, Launch, Node
from graphjit._layout import Layout
from graphjit._memory import Memory
from graphjit.backends.base import BindingStats, Device
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

    def adopt(
        self, device: Device, address: int, nbytes: int, owner: object, stream: Any = None
    ) -> Memory:
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

    def build(self, schedule: Schedule, device: Device, inputs: str) -> CPUExecutable:
        """Compile the kernels and lay out the program."""
        return CPUExecutable(schedule, inputs)

    def synchronize(self, device: Device) -> None:
        """Nothing: calls return when their work is done."""


class CPUExecutable:
    """A Schedule as one native program.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    inputs : {"auto", "copy", "rebind"}
        How arguments are bound; unless they are to be copied, in place, which costs nothing.
    """

    def __init__(self, schedule: Schedule, inputs: str) -> None:
        from graphjit.backends.cpu.program import Program

        self._schedule = schedule
        self._has_scalars = bool(schedule.scalars)
        self._arena = HostMemory(schedule.arena.nbytes)
        self._arena_word = (self._arena.address,)
        self._kernels: list[Any] = []
        self._program = Program([self._step(node) for node in schedule.graph.nodes], schedule.slots)
        self._slots = struct.Struct(f"<{schedule.slots}Q")
        self._static = [*self._static_inputs()] if inputs == "copy" else []
        self._last: Sequence[int] = ()
        self._same = self._rebound = self._copied = 0

    def run(self, pointers: Sequence[int], scalars: Sequence[Any], stream: Any) -> None:
        """Replay once; returns when the work is done."""
        given = pointers
        if self._static:
            pointers = [*pointers]
            for slot, memory, layout, _ in self._static:
                low = layout.extent[0]
                _view(memory.address - low, layout)[...] = _view(given[slot] - low, layout)
                pointers[slot] = memory.address
            self._copied += 1
        if pointers == self._last:
            self._same += 1
        else:
            self._last = pointers
            self._rebound += 1
        words = (*pointers, *self._arena_word)
        if self._has_scalars:
            words += self._schedule.scalar_words(scalars)
        self._program.run(self._slots, words)
        for slot, memory, layout, written in self._static:
            if written:
                low = layout.extent[0]
                _view(given[slot] - low, layout)[...] = _view(memory.address - low, layout)

    @property
    def nbytes(self) -> int:
        """Bytes of its temporaries and static inputs."""
        return self._arena.nbytes + sum(memory.nbytes for _, memory, _, _ in self._static)

    def binding_stats(self) -> BindingStats:
        """How its calls were bound."""
        return BindingStats(self._same, 0, self._rebound, self._copied, 0, 1)

    def close(self) -> None:
        """Free the program."""
        self._program.close()

    def _static_inputs(self) -> Iterator[tuple[int, HostMemory, Layout, bool]]:
        """Slot, buffer and layout of each argument, and whether it is written."""
        for slot, layout, written in self._schedule.copyable_inputs():
            low, high = layout.extent
            yield slot, HostMemory(high - low), layout, written

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
