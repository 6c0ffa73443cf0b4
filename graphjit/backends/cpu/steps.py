"""The steps of a native program, from the nodes of a Schedule."""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable
from typing import Any

from graphjit._device_control import HostCall, Scheduled, Switch, Update, While
from graphjit._layout import Layout
from graphjit._nodes import Copy, Fill, Launch, View
from graphjit.backends.cpu.codegen import NativeKernel, check_kernel, compile_kernel
from graphjit.backends.cpu.items import Call, Item, Step
from graphjit.backends.cpu.memory import view_at
from graphjit.backends.cpu.memory_kernels import copy_step, fill_step
from graphjit.backends.cpu.overlap import overlapped
from graphjit.kernel.access import fast_axis
from graphjit.kernel.generated import GeneratedLaunch
from graphjit.kernel.ir import KernelIR
from graphjit.kernel.packing import Address, ParamImage, pack_launch
from graphjit.schedule.flat import Jump, Run, flatten
from graphjit.schedule.host_calls import call_host
from graphjit.schedule.schedule import Schedule
from graphjit.schedule.update_kernel import SLOTS, update_launch

# By kernel: the fast axis for parameters that don't change and a block.
_axes: weakref.WeakKeyDictionary[KernelIR, dict[tuple[bytes, Any], str]]
_axes = weakref.WeakKeyDictionary()
_MAX_AXES = 256


class Steps:
    """The steps of a schedule.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    slots, arena : int
        Addresses of the slots and of the temporaries.
    threads : int
        How many threads there are for them.
    """

    def __init__(self, schedule: Schedule, slots: int, arena: int, threads: int) -> None:
        self._schedule = schedule
        self._slots = Address(len(schedule.externals), slots - arena)
        # What keeps their code loaded.
        self.kept: list[NativeKernel] = []
        self.items: list[Item] = []
        flat = flatten(schedule, lambda node: isinstance(node, (While, Switch, HostCall)))
        places = []
        for item in flat:
            places.append(len(self.items))
            if isinstance(item, Run):
                steps = [self._step(node) for node in item.order.nodes]
                self.items += overlapped(steps, item.order.hazards.edges, threads)
            elif isinstance(item, HostCall):
                self.items.append(Call(self._calling(item)))
            else:
                self.items.append(item)
        places.append(len(self.items))
        for jump in self.items:
            if isinstance(jump, Jump):
                jump.target = places[jump.target]

    def _calling(self, call: HostCall) -> Callable[[Any], None]:
        """What calls the host with what the slots say."""
        schedule = self._schedule

        def read(address: int, layout: Layout) -> Any:
            return view_at(address, layout).copy()

        return lambda slots: call_host(schedule, call, bytes(slots), read)

    def _step(self, node: Any) -> Step:
        if isinstance(node, (Copy, Fill)):
            made = memory_step(self._schedule, node)
        elif isinstance(node, Launch):
            made = self._launch(node, self._schedule.image(node))
        else:
            launch = update_launch(self._schedule, node)
            image = pack_launch(launch.kernel, launch.operands, self._address, self._schedule.slot)
            made = self._launch(launch, image)
        late = any(r.slot >= self._schedule.slots for r in made.image.relocations)
        return dataclasses.replace(made, is_late=late)

    def _address(self, view: View) -> Address:
        return self._slots if view.buffer == SLOTS else self._schedule.address(view)

    def _launch(self, launch: Launch | GeneratedLaunch, image: ParamImage) -> Step:
        native = native_kernel(launch, image)
        self.kept.append(native)
        threads = math.prod(launch.block)
        return Step(
            native.address,
            image,
            launch.block,
            launch.grid,
            launch.shared_bytes,
            native.scratch_bytes(threads, launch.shared_bytes),
            launch.kernel.name,
            math.prod(launch.grid) * threads * native.work,
        )


def check_node(schedule: Schedule, node: Scheduled) -> None:
    """Raise what only code generation finds out."""
    if isinstance(node, Launch):
        check_kernel(node.kernel)
        native_kernel(node, schedule.image(node))
    elif isinstance(node, Update):
        update_launch(schedule, node)
    elif isinstance(node, (Copy, Fill)):
        memory_step(schedule, node)


def native_kernel(node: Launch | GeneratedLaunch, image: ParamImage) -> NativeKernel:
    """A launch's kernel as native code; compiled once."""
    # The iterations of a loop launch one kernel on arrays of the same shapes again and again.
    known = _axes.setdefault(node.kernel, {})
    axis = known.get((image.data, node.block))
    if axis is None:
        if len(known) >= _MAX_AXES:
            known.clear()
        axis = fast_axis(node.kernel.accesses, image.integers(), node.block)
        known[image.data, node.block] = axis
    return compile_kernel(node.kernel, axis)


def memory_step(schedule: Schedule, node: Copy | Fill) -> Step:
    """The step of a copy or fill."""
    if isinstance(node, Copy):
        source, target = node.source.view, node.target.view
        return copy_step(
            schedule.address(target), target.layout, schedule.address(source), source.layout
        )
    view = node.target.view
    return fill_step(schedule.address(view), view.layout, schedule.fill_value(node))
