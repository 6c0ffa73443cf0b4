"""The steps of a native program, from the nodes of a Schedule."""

from __future__ import annotations

import math
import weakref
from typing import Any

from graphjit._nodes import Copy, Fill, Launch, Work
from graphjit.backends.cpu.codegen import NativeKernel, compile_kernel
from graphjit.backends.cpu.memory_kernels import copy_step, fill_step
from graphjit.backends.cpu.program import Step
from graphjit.kernel.access import fast_axis
from graphjit.kernel.ir import KernelIR
from graphjit.kernel.packing import ParamImage
from graphjit.schedule.schedule import Schedule

# By kernel: the fast axis for parameters that don't change and a block.
_axes: weakref.WeakKeyDictionary[KernelIR, dict[tuple[bytes, Any], str]]
_axes = weakref.WeakKeyDictionary()
_MAX_AXES = 256


def step(schedule: Schedule, node: Work) -> tuple[Step, Any]:
    """A node's step, and what keeps its code loaded."""
    if not isinstance(node, Launch):
        return memory_step(schedule, node), None
    image, native = native_launch(schedule, node)
    threads = math.prod(node.block)
    made = Step(
        native.address,
        image,
        node.block,
        node.grid,
        node.shared_bytes,
        native.scratch_bytes(threads, node.shared_bytes),
        node.kernel.name,
        math.prod(node.grid) * threads,
    )
    return made, native


def native_launch(schedule: Schedule, node: Launch) -> tuple[ParamImage, NativeKernel]:
    """A launch's parameters and its kernel as native code; compiled once."""
    image = schedule.image(node)
    # The iterations of a loop launch one kernel on arrays of the same shapes again and again.
    known = _axes.setdefault(node.kernel, {})
    axis = known.get((image.data, node.block))
    if axis is None:
        if len(known) >= _MAX_AXES:
            known.clear()
        axis = fast_axis(node.kernel.accesses, image.integers(), node.block)
        known[image.data, node.block] = axis
    return image, compile_kernel(node.kernel, axis)


def memory_step(schedule: Schedule, node: Copy | Fill) -> Step:
    """The step of a copy or fill."""
    if isinstance(node, Copy):
        source, target = node.source.view, node.target.view
        return copy_step(
            schedule.address(target), target.layout, schedule.address(source), source.layout
        )
    view = node.target.view
    return fill_step(schedule.address(view), view.layout, schedule.fill_value(node))
