"""CUDAExecutable: a Schedule as an explicit CUDA graph, repointed in place.

The graph is built node by node with `cuGraphAddKernelNode`: the parameter structure and the image
it points to are kept, so that repointing a node later is one `cuGraphExecKernelNodeSetParams`
(0.6-0.9 µs) and not a rebuild, and cooperative launches, which cuda.core's graph refuses, are the
same call with one attribute.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from cuda.bindings import driver

from graphjit._device_control import Switch, Update, While
from graphjit._layout import Layout, contiguous, overlap
from graphjit._memory import Memory
from graphjit._nodes import Access, Copy, Fill, View, Work
from graphjit.backends.binding_stats import BindingStats
from graphjit.backends.cuda.driver import activate, check
from graphjit.backends.cuda.image import BoundImage
from graphjit.backends.cuda.instances import Instances
from graphjit.backends.cuda.memory_kernels import copy_launch, fill_launch
from graphjit.backends.cuda.nodes import KernelNode, StaticInput
from graphjit.backends.executable import Executable, Pointers
from graphjit.kernel import frontend
from graphjit.kernel.packing import Address, pack_launch
from graphjit.schedule.scalar_words import ScalarWords
from graphjit.schedule.schedule import Schedule

# Beyond this a kernel must be told, once, how much dynamic shared memory it may get.
_PLAIN_SHARED = 48 * 1024


class CUDAExecutable(Executable):
    """A Schedule instantiated on a CUDA device.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    device : Device
        Where.
    memory : callable
        Allocates device memory: from a number of bytes to a Memory.
    copy : callable
        Copies elements: source, its layout, target, its layout, stream.
    inputs : {"auto", "copy", "rebind"}
        How arguments are bound.
    """

    def __init__(
        self, schedule: Schedule, device: Any, memory: Any, copy: Any, inputs: str
    ) -> None:
        activate(device.index)
        self._schedule = schedule
        self._allocate = memory
        self._arena = memory(schedule.arena.nbytes) if schedule.arena.nbytes else Memory(0, 0, None)
        self._has_scalars = bool(schedule.scalars)
        self._scalar_words = ScalarWords(schedule.scalars)
        self._staging: list[Any] = []
        self._nodes: list[KernelNode] = []
        self._kept: list[Any] = []
        self._graph: Any = check(driver.cuGraphCreate(0), "creating a graph")
        try:
            self._build()
            self._instances = Instances(
                device.index,
                self._graph,
                self._nodes,
                schedule.slots - 1,
                [self._arena, *self._staging],
                memory,
                tuple(self._static_inputs(copy)),
                inputs,
            )
        except BaseException:
            driver.cuGraphDestroy(self._graph)
            raise

    def run(self, pointers: Pointers, scalars: Any, stream: Any) -> None:
        """Replay once on a stream; returns when the replay is queued."""
        words = self._scalar_words.of(scalars) if self._has_scalars else ()
        self._instances.launch(pointers, words, stream)

    @property
    def nbytes(self) -> int:
        """Bytes of its temporaries and static inputs."""
        return sum(memory.nbytes for memory in self._instances.memory())

    def binding_stats(self) -> BindingStats:
        """How its calls were bound."""
        return self._instances.stats()

    def close(self) -> None:
        """Destroy the graph; a second call does nothing."""
        self._instances.close()

    def _static_inputs(self, copy: Any) -> Iterator[StaticInput]:
        """The arguments that may be copied."""
        for slot, layout, written in self._schedule.copyable_inputs():
            low, high = layout.extent
            copied = functools.partial(_copy_input, copy, layout)
            yield StaticInput(slot, high - low, copied, written)

    def _build(self) -> None:
        waits: dict[int, list[int]] = {}
        for before, after in self._schedule.hazards.edges:
            waits.setdefault(after, []).append(before)
        last: list[list[Any]] = []  # the CUDA nodes that others must wait for
        for index, node in enumerate(self._schedule.nodes):
            assert not isinstance(node, (Update, While, Switch))
            wait_for = [handle for before in waits.get(index, []) for handle in last[before]]
            for launch, address in self._launches(node):
                slot = self._schedule.slot
                if isinstance(node, Fill):
                    slot = functools.partial(slot, dtype=node.target.view.layout.dtype)
                packed = pack_launch(launch.kernel, launch.operands, address, slot)
                kernel = frontend.load(launch.kernel)
                arena = len(self._schedule.externals)
                image = BoundImage(packed, kernel.order, arena, self._arena.address)
                params = self._params(launch, kernel.kernel, image)
                handle = check(
                    driver.cuGraphAddKernelNode(
                        self._graph, wait_for or None, len(wait_for), params
                    ),
                    f"adding {launch.kernel.name} to a graph",
                )
                if launch.kernel.cooperative:
                    _make_cooperative(handle)
                self._nodes.append(KernelNode(handle, image, params))
                wait_for = [handle]
            last.append(wait_for)

    def _launches(self, node: Work) -> list[tuple[Any, Any]]:
        """The kernel launches of a node, each with what tells where its views are."""
        address = self._schedule.address
        if any(access.view.layout.size == 0 for access in node.writes) and isinstance(
            node, (Copy, Fill)
        ):
            return []
        if isinstance(node, Fill):
            return [(fill_launch(node), address)]
        if isinstance(node, Copy):
            source, target = node.source, node.target
            if not self._may_overlap(source, target):
                return [(copy_launch(source.view, target.view), address)]
            # As NumPy: through a temporary, since threads run in no order.
            layout = contiguous(source.view.layout.shape, source.view.layout.dtype)
            memory = self._allocate(layout.nbytes)
            self._staging.append(memory)
            staged = View(-1, 0, layout)

            def place(view: View) -> Address:
                return self._fixed(memory.address) if view.buffer == -1 else address(view)

            return [
                (copy_launch(source.view, staged), place),
                (copy_launch(staged, target.view), place),
            ]
        return [(node, address)]

    def _fixed(self, address: int) -> Address:
        """An address that doesn't change, relative to the arena's, which doesn't either."""
        return Address(len(self._schedule.externals), address - self._arena.address)

    def _may_overlap(self, source: Access, target: Access) -> bool:
        if source.view == target.view:
            return False
        if source.view.buffer != target.view.buffer:
            # Buffers that overlap at this call are in one hazard group; a copy between them is rare
            # enough to stage it always.
            return self._schedule.aliased(source.view.buffer, target.view.buffer)
        return overlap(
            source.view.layout, source.view.offset, target.view.layout, target.view.offset
        )

    def _params(self, launch: Any, kernel: Any, image: BoundImage) -> Any:
        self._kept.append(kernel)
        function = check(driver.cuKernelGetFunction(kernel.handle), f"loading {launch.kernel.name}")
        if launch.shared_bytes > _PLAIN_SHARED:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(
                driver.cuFuncSetAttribute(function, attribute, launch.shared_bytes),
                f"giving {launch.kernel.name} {launch.shared_bytes} bytes of shared memory",
            )
        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.func = function
        params.gridDimX, params.gridDimY, params.gridDimZ = launch.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = launch.block
        params.sharedMemBytes = launch.shared_bytes
        params.kernelParams = image.address
        return params


def _copy_input(copy: Any, layout: Layout, source: int, target: int, stream: Any) -> None:
    """Copy the elements of an argument from one lowest address to another."""
    if layout.is_contiguous:
        copied = driver.cuMemcpyDtoDAsync(target, source, layout.nbytes, stream or 0)
        check(copied, "copying an argument")
    else:
        low = layout.extent[0]
        copy(source - low, layout, target - low, layout, stream)


def _make_cooperative(handle: Any) -> None:
    value = driver.CUkernelNodeAttrValue()
    value.cooperative = 1
    attribute = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    check(driver.cuGraphKernelNodeSetAttribute(handle, attribute, value), "a cooperative launch")
