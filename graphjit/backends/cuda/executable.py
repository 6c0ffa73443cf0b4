"""CUDAExecutable: a Schedule as an explicit CUDA graph, repointed in place.

The graph is built node by node with `cuGraphAddKernelNode`: the parameter structure and the image
it points to are kept, so that repointing a node later is one `cuGraphExecKernelNodeSetParams`
(0.6-0.9 µs) and not a rebuild, and cooperative launches, which cuda.core's graph refuses, are the
same call with one attribute.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver

from graphjit._graph import Access, Copy, Fill, Node, View
from graphjit._layout import contiguous, overlap
from graphjit._locks import make_lock
from graphjit.backends.cuda.driver import activate, check
from graphjit.backends.cuda.image import BoundImage
from graphjit.backends.cuda.memory import order
from graphjit.backends.cuda.memory_kernels import copy_launch, fill_launch
from graphjit.kernel import frontend
from graphjit.kernel.packing import Address, pack_launch
from graphjit.schedule.schedule import Schedule

# Beyond this a kernel must be told, once, how much dynamic shared memory it may get.
_PLAIN_SHARED = 48 * 1024
# Sets of pointers with an instance of their own, and sets remembered for having come once.
_MAX_INSTANCES = 8
_MAX_SEEN = 64
# After so many evictions no instances are made any more: the sets are too many for it to pay.
_MAX_EVICTED = 16
_launch = driver.cuGraphLaunch


class CUDAExecutable:
    """A Schedule instantiated on a CUDA device.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    device : Device
        Where.
    memory : callable
        Allocates device memory: from a number of bytes to a Memory.
    """

    def __init__(self, schedule: Schedule, device: Any, memory: Any) -> None:
        activate(device.index)
        self._schedule = schedule
        self._device = device
        self._allocate = memory
        self._arena = memory(max(schedule.arena.nbytes, 1))
        self._staging: list[Any] = []
        self._nodes: list[tuple[Any, BoundImage, Any]] = []
        self._kept: list[Any] = []
        self._lock = make_lock()
        self._slots = struct.Struct(schedule.slot_format)
        self._words = struct.Struct(f"<{schedule.slots}Q")
        self._bound: tuple[int, ...] = (-1,) * schedule.slots
        self._stream: Any = None
        self._launched = False
        self._exec: Any = None
        # Instances of the graph that are bound for good, by what they are bound to.
        self._instances: dict[tuple[int, ...], Any] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._evicted = 0
        self._graph = check(driver.cuGraphCreate(0), "creating a graph")
        try:
            self._build()
            self._users = [
                [node for node in self._nodes if slot in node[1].slots]
                for slot in range(schedule.slots)
            ]
        except BaseException:
            self.close()
            raise

    def run(self, pointers: Sequence[int], scalars: Sequence[Any], stream: Any) -> None:
        """Replay once on a stream; returns when the replay is queued."""
        activate(self._device.index)
        words: tuple[int, ...] = (*pointers, self._arena.address)
        if self._schedule.scalars:
            values = self._schedule.scalar_values(scalars)
            words = self._words.unpack(self._slots.pack(*words, *values))
        with self._lock:
            executable = self._instances.get(words)
            if executable is None:
                executable = self._instance(words)
            if stream != self._stream or not self._launched:
                self._change_stream(stream)
            (error,) = _launch(executable, stream or 0)
            if error:
                check((error,), "launching a graph")

    def close(self) -> None:
        """Destroy the graph; a second call does nothing."""
        with self._lock:
            executables = [*self._instances.values(), self._exec]
            self._instances, self._exec = {}, None
            graph, self._graph = self._graph, None
        for executable in executables:
            if executable is not None:
                driver.cuGraphExecDestroy(executable)
        if graph is not None:
            driver.cuGraphDestroy(graph)

    def __del__(self) -> None:
        if driver is not None and getattr(self, "_lock", None) is not None:
            self.close()

    def _build(self) -> None:
        waits: dict[int, list[int]] = {}
        for before, after in self._schedule.hazards.edges:
            waits.setdefault(after, []).append(before)
        last: list[list[Any]] = []  # the CUDA nodes that others must wait for
        for index, node in enumerate(self._schedule.graph.nodes):
            wait_for = [handle for before in waits.get(index, ()) for handle in last[before]]
            for launch, address in self._launches(node):
                slot = self._schedule.slot
                if isinstance(node, Fill):
                    slot = functools.partial(slot, dtype=node.target.view.layout.dtype)
                image = BoundImage(pack_launch(launch.kernel, launch.operands, address, slot))
                params = self._params(launch, image)
                handle = check(
                    driver.cuGraphAddKernelNode(
                        self._graph, wait_for or None, len(wait_for), params
                    ),
                    f"adding {launch.kernel.name} to a graph",
                )
                if launch.kernel.cooperative:
                    _make_cooperative(handle)
                self._nodes.append((handle, image, params))
                wait_for = [handle]
            last.append(wait_for)
        self._exec = check(driver.cuGraphInstantiate(self._graph, 0), "instantiating a graph")

    def _launches(self, node: Node) -> list[tuple[Any, Any]]:
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

    def _params(self, launch: Any, image: BoundImage) -> Any:
        kernel = frontend.load(launch.kernel)
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

    def _change_stream(self, stream: Any) -> None:
        """Order this stream's replays after those of the one before: they share the arena."""
        if self._launched:
            order(self._stream, stream)
        for memory in (self._arena, *self._staging):
            memory.used_on(stream)
        self._stream = stream
        self._launched = True

    def _instance(self, words: tuple[int, ...]) -> Any:
        """The one to launch: bound for good if the same pointers came before, else repointed.

        Feedback loops (`u = step(u)`) come back to the same few sets of pointers.
        """
        if words not in self._seen or self._evicted >= _MAX_EVICTED:
            if len(self._seen) >= _MAX_SEEN:
                self._seen.clear()
            self._seen.add(words)
            if words != self._bound:
                self._repoint(words)
            return self._exec
        for handle, image, params in self._nodes:
            image.bind(words)
            check(driver.cuGraphKernelNodeSetParams(handle, params), "binding a graph")
        made = check(driver.cuGraphInstantiate(self._graph, 0), "instantiating a graph")
        while len(self._instances) >= _MAX_INSTANCES:
            # Destroying waits for nothing: the driver frees it when its launches are over.
            driver.cuGraphExecDestroy(self._instances.pop(next(iter(self._instances))))
            self._evicted += 1
        self._instances[words] = made
        # The images are shared with the one that is repointed: it is as if bound to nothing.
        self._bound = (-1,) * len(words)
        return made

    def _repoint(self, words: tuple[int, ...]) -> None:
        stale = {}
        for slot, (old, new) in enumerate(zip(self._bound, words, strict=True)):
            if old != new:
                for node in self._users[slot]:
                    stale[id(node)] = node
        self._bound = (-1,) * len(words)  # until all nodes are repointed
        for handle, image, params in stale.values():
            image.bind(words)
            check(
                driver.cuGraphExecKernelNodeSetParams(self._exec, handle, params),
                "repointing a graph",
            )
        self._bound = words


def _make_cooperative(handle: Any) -> None:
    value = driver.CUkernelNodeAttrValue()
    value.cooperative = 1
    attribute = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    check(driver.cuGraphKernelNodeSetAttribute(handle, attribute, value), "a cooperative launch")
