"""Nodes of a Schedule as explicit SYCL graphs.

What changes from call to call is in slots in device memory, from which kernels load it: a graph is
never updated, which few devices can do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from graphjit._device_control import Update
from graphjit._errors import UnsupportedKernelError
from graphjit._layout import contiguous, overlap
from graphjit._memory import Memory
from graphjit._nodes import Access, Copy, Fill, View
from graphjit.backends.memory_kernels import copy_launch, fill_launch
from graphjit.backends.sycl import runtime, shim
from graphjit.backends.sycl.codegen import SPIRVKernel, compile_kernel
from graphjit.kernel.packing import Address, ParamImage, indirect_image, pack_launch
from graphjit.schedule.order import Order
from graphjit.schedule.schedule import Schedule
from graphjit.schedule.update_kernel import SLOTS, update_launch

_FIXED = -1  # as a slot: an address that never changes


class GraphBuilder:
    """Makes the graphs of a schedule.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    index : int
        The device's number.
    arena : Memory
        Where its temporaries are.
    slots : int
        Address of the slots.
    allocate : callable
        Allocates device memory: from a number of bytes to a Memory.

    Attributes
    ----------
    memory : list of Memory
        What the graphs use besides.
    """

    def __init__(
        self,
        schedule: Schedule,
        index: int,
        arena: Memory,
        slots: int,
        allocate: Callable[[int], Memory],
    ) -> None:
        self._schedule, self._index, self._arena = schedule, index, arena
        self._slots, self._allocate = slots, allocate
        self.memory: list[Memory] = []
        self.kept: list[Any] = []

    def executable(self, order: Order) -> Any:
        """What replays some nodes, none of them a loop, a branch or a call of the host.

        Parameters
        ----------
        order : Order
            The nodes.

        Returns
        -------
        shim.Executable or shim.Launch
            A graph; or one launch as it is, which costs less, and Intel's runtime for CPUs keeps a
            kilobyte for each kernel of a graph at each replay.
        """
        launches = [[self._made(*each) for each in self._launches(node)] for node in order.nodes]
        if sum(map(len, launches)) == 1:
            return next(launch for some in launches for launch in some)
        graph = shim.Graph(runtime.address(self._index))
        waits: dict[int, list[int]] = {}
        for before, after in order.hazards.edges:
            waits.setdefault(after, []).append(before)
        last: list[list[int]] = []  # the graph's nodes that others must wait for
        for index, some in enumerate(launches):
            wait_for = [each for before in waits.get(index, []) for each in last[before]]
            for launch in some:
                wait_for = [graph.add(launch, wait_for)]
            last.append(wait_for)
        return graph.finalize()

    def _launches(self, node: Any) -> list[tuple[Any, ParamImage]]:
        """The kernel launches of a node, each with its parameters."""
        schedule = self._schedule
        if isinstance(node, Update):
            launch = update_launch(schedule, node)
            return [(launch, self._packed(launch, self._address))]
        if any(access.view.layout.size == 0 for access in node.writes) and isinstance(
            node, (Copy, Fill)
        ):
            return []
        if isinstance(node, Fill):
            slot = functools.partial(schedule.slot, dtype=node.target.view.layout.dtype)
            launch = fill_launch(node)
            return [(launch, pack_launch(launch.kernel, launch.operands, schedule.address, slot))]
        if not isinstance(node, Copy):
            return [(node, schedule.image(node))]
        source, target = node.source, node.target
        if not self._may_overlap(source, target):
            launch = copy_launch(source.view, target.view)
            return [(launch, self._packed(launch, schedule.address))]
        # As NumPy: through a temporary, since threads run in no order.
        layout = contiguous(source.view.layout.shape, source.view.layout.dtype)
        memory = self._allocate(layout.nbytes)
        self.memory.append(memory)
        staged = View(-1, 0, layout)

        def place(view: View) -> Address:
            return Address(_FIXED, memory.address) if view.buffer == -1 else schedule.address(view)

        launches = copy_launch(source.view, staged), copy_launch(staged, target.view)
        return [(launch, self._packed(launch, place)) for launch in launches]

    def _packed(self, launch: Any, address: Callable[[View], Address]) -> ParamImage:
        return pack_launch(launch.kernel, launch.operands, address, self._schedule.slot)

    def _address(self, view: View) -> Address:
        if view.buffer == SLOTS:
            return Address(_FIXED, self._slots)
        return self._schedule.address(view)

    def _may_overlap(self, source: Access, target: Access) -> bool:
        if source.view == target.view:
            return False
        if source.view.buffer != target.view.buffer:
            return self._schedule.aliased(source.view.buffer, target.view.buffer)
        return overlap(
            source.view.layout, source.view.offset, target.view.layout, target.view.offset
        )

    def _made(self, launch: Any, image: ParamImage) -> shim.Launch:
        arena = len(self._schedule.externals)
        image, loaded = _indirect(image, self._slots, {arena: self._arena.address, _FIXED: 0})
        compiled = compile_kernel(launch.kernel, loaded)
        kernel = loaded_kernel(compiled, self._index, launch)
        self.kept.append(kernel)
        return _launch(kernel, compiled, launch, image)


def launch_once(
    launch: Any,
    address: Callable[[View], Address],
    addresses: tuple[int, ...],
    index: int,
    queue: int,
) -> None:
    """Launch a kernel outside of any schedule.

    Parameters
    ----------
    launch : GeneratedLaunch
        The launch.
    address : callable
        Which of the addresses a view is at.
    addresses : tuple of int
        They.
    index : int
        The device's number.
    queue : int
        Address of the queue.
    """
    image = pack_launch(launch.kernel, launch.operands, address, lambda ref, type_: 0)
    image, loaded = _indirect(image, 0, dict(enumerate(addresses)))
    assert not loaded
    compiled = compile_kernel(launch.kernel)
    kernel = loaded_kernel(compiled, index, launch)
    _launch(kernel, compiled, launch, image).replay(queue)


def loaded_kernel(compiled: SPIRVKernel, index: int, launch: Any) -> Any:
    """A launch's kernel on a device.

    Raises
    ------
    UnsupportedKernelError
        If the device can't run it, or not with so many threads or so much local memory.
    """
    device = runtime.devices()[index]
    name, threads = launch.kernel.name, math.prod(launch.block)
    if threads > device.max_work_group_size:
        raise UnsupportedKernelError(
            f"kernel {name} is launched with {threads} threads a block; {device.name.strip()} "
            f"takes {device.max_work_group_size}"
        )
    shared = launch.shared_bytes + compiled.shared_bytes + _exchange_bytes(compiled, launch)
    if shared > device.local_mem_size:
        raise UnsupportedKernelError(
            f"kernel {name} is launched with {shared} bytes of shared memory; "
            f"{device.name.strip()} has {device.local_mem_size}"
        )
    return runtime.load(compiled, index, name, shim.held)


def _launch(kernel: Any, compiled: SPIRVKernel, launch: Any, image: ParamImage) -> shim.Launch:
    threads = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
    arguments = _arguments(compiled, image, launch)
    return shim.Launch(kernel.addressof_ref(), threads, launch.block, arguments)


def _indirect(
    image: ParamImage, slots: int, fixed: dict[int, int]
) -> tuple[ParamImage, frozenset[int]]:
    """Parameters whose changing ones are loaded from the slots, and those that don't, in place."""
    data = bytearray(image.data)
    moving = []
    for relocation in image.relocations:
        if relocation.slot in fixed:
            value = (fixed[relocation.slot] + (relocation.addend or 0)) % 2**64
            data[relocation.target : relocation.target + 8] = value.to_bytes(8, "little")
        else:
            moving.append(relocation)
    return indirect_image(ParamImage(bytes(data), image.offsets, tuple(moving)), slots, _FIXED)


def _arguments(compiled: SPIRVKernel, image: ParamImage, launch: Any) -> list[tuple[int, int, int]]:
    """Kind, size and value of each of a kernel's parameters."""
    arguments = [
        (0, size, int.from_bytes(image.data[offset : offset + size], "little"))
        for offset, size in zip(image.offsets, compiled.sizes, strict=True)
    ]
    if compiled.has_dynamic_shared:
        # No device has local memory of no bytes.
        arguments += [(1, 0, max(launch.shared_bytes, 1)), (0, 4, launch.shared_bytes)]
    if compiled.exchanges:
        arguments.append((1, 0, _exchange_bytes(compiled, launch)))
    return arguments


def _exchange_bytes(compiled: SPIRVKernel, launch: Any) -> int:
    """Bytes in which the lanes of a block's warps exchange."""
    return 8 * 32 * -(-math.prod(launch.block) // 32) if compiled.exchanges else 0
