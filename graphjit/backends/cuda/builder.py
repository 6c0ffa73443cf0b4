"""A Schedule as an explicit CUDA graph.

The graph is built node by node with `cuGraphAddKernelNode`: the parameter structure and the image
it points to are kept, so that repointing a node later is one `cuGraphExecKernelNodeSetParams`
(0.6-0.9 µs) and not a rebuild, and cooperative launches, which cuda.core's graph refuses, are the
same call with one attribute.

Loops and branches are conditional nodes. What is in them can't be repointed, so a schedule with
state has its slots in device memory: the first nodes of the graph write those that a call fills,
and kernels load what changes from there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver
from numba import cuda
from numba.cuda import types

from graphjit._device_control import Switch, Update, While
from graphjit._layout import Layout, contiguous, overlap
from graphjit._memory import Memory
from graphjit._nodes import Access, Copy, Fill, StateRef, View, constant
from graphjit.backends.cuda.driver import check
from graphjit.backends.cuda.image import BoundImage
from graphjit.backends.cuda.nodes import KernelNode
from graphjit.backends.memory_kernels import copy_launch, fill_launch
from graphjit.kernel import frontend, numba_types
from graphjit.kernel.generated import GeneratedLaunch, generated
from graphjit.kernel.packing import Address, ParamImage, indirect_image, pack_launch
from graphjit.schedule.order import Order
from graphjit.schedule.schedule import Schedule
from graphjit.schedule.update_kernel import SLOTS, DecidingKernels, update_launch

# Beyond this a kernel must be told, once, how much dynamic shared memory it may get.
_PLAIN_SHARED = 48 * 1024
# So many slots are written by one node.
_WRITTEN = 16


class GraphBuilder:
    """The CUDA graph of a schedule.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    arena : Memory
        Where its temporaries are.
    allocate : callable
        Allocates device memory: from a number of bytes to a Memory.
    early : bool
        Whether kernels may be launched before the one that they wait for has ended.

    Attributes
    ----------
    graph : CUgraph
        The graph; destroying it is the caller's business once this is made. Of a schedule that
        calls the host it only holds what writes the slots.
    slots : int
        Address of the slots, if they are in device memory.
    nodes : list of KernelNode
        The nodes that calls repoint.
    memory : list of Memory
        What its nodes use besides.
    """

    def __init__(
        self,
        schedule: Schedule,
        arena: Memory,
        allocate: Callable[[int], Memory],
        early: bool,
    ) -> None:
        self._schedule, self._arena, self._allocate = schedule, arena, allocate
        self._early = early
        self.nodes: list[KernelNode] = []
        self.memory: list[Memory] = []
        self.kept: list[Any] = []
        # Conditional handles, by the node that they are of.
        self._handles: dict[int, Any] = {}
        self.slots = 0
        # Those of its nodes that are kernels.
        self._kernels: set[int] = set()
        self.graph: Any = check(driver.cuGraphCreate(0), "creating a graph")
        # What the nodes that are added now will be launched with.
        self._root = self.graph
        try:
            first = self._add_slots() if schedule.has_state else []
            if not schedule.has_calls:
                self._add(self.graph, schedule.order, first, None)
        except BaseException:
            driver.cuGraphDestroy(self.graph)
            raise

    def part(self, order: Order) -> Any:
        """A graph of some of the nodes, to be launched once the slots are written.

        Parameters
        ----------
        order : Order
            The nodes; none of them calls the host.

        Returns
        -------
        CUgraph
            To be destroyed by the caller.
        """
        graph = check(driver.cuGraphCreate(0), "creating a graph")
        whole, self._root = self._root, graph
        try:
            self._add(graph, order, [], None)
        except BaseException:
            driver.cuGraphDestroy(graph)
            raise
        finally:
            self._root = whole
        return graph

    def _add_slots(self) -> list[Any]:
        """Add the nodes that write what calls give into the slots."""
        size = self._schedule.words
        memory = self._allocate(8 * size)
        self.memory.append(memory)
        self.slots = memory.address
        check(driver.cuMemsetD8(memory.address, 0, 8 * size), "clearing the state of a graph")
        check(driver.cuStreamSynchronize(0), "clearing the state of a graph")
        layout = Layout((size,), (8,), np.dtype(np.uint64))
        given, made = self._schedule.slots, []
        for first in range(0, given, _WRITTEN):
            values = (
                StateRef(slot) if slot < given else constant(np.uint64(0))
                for slot in range(first, first + _WRITTEN)
            )
            count = min(_WRITTEN, given - first)
            operands = (View(SLOTS, 0, layout), constant(first), constant(count), *values)
            launch = GeneratedLaunch(_write_slots(), operands, (1, 1, 1), (1, 1, 1))
            image = pack_launch(
                launch.kernel, operands, self._address, lambda ref, type_: ref.index
            )
            made.append(self._add_kernel(self.graph, launch, image, []))
        return made

    def _add(self, graph: Any, order: Order, first: list[Any], deciding: Any) -> None:
        """Add nodes to the graph or to a part of it.

        Parameters
        ----------
        graph : CUgraph
            The graph.
        order : Order
            The nodes.
        first : list of CUgraphNode
            What the first node that changes state must wait for.
        deciding : CUgraphConditionalHandle or None
            What the last node decides.
        """
        waits: dict[int, list[int]] = {}
        for before, after in order.hazards.edges:
            waits.setdefault(after, []).append(before)
        last: list[list[Any]] = []  # the CUDA nodes that others must wait for
        for index, node in enumerate(order.nodes):
            wait_for = [handle for before in waits.get(index, []) for handle in last[before]]
            if isinstance(node, (Update, While, Switch)):
                wait_for, first = [*wait_for, *first], []
            if isinstance(node, Update):
                decided = deciding
                if index + 1 < len(order.nodes):
                    decided = self._handle(order.nodes[index + 1])
                wait_for = [self._add_update(graph, node, wait_for, decided)]
            elif isinstance(node, (While, Switch)):
                wait_for = [self._add_conditional(graph, node, order.bodies[index], wait_for)]
            else:
                for launch, address in self._launches(node):
                    slot = self._schedule.slot
                    if isinstance(node, Fill):
                        slot = functools.partial(slot, dtype=node.target.view.layout.dtype)
                    image = pack_launch(launch.kernel, launch.operands, address, slot)
                    wait_for = [self._add_kernel(graph, launch, image, wait_for)]
            last.append(wait_for)

    def _add_update(self, graph: Any, update: Update, wait_for: list[Any], decided: Any) -> Any:
        # What the host decides it reads itself.
        deciding = _deciding() if decided is not None else None
        handle = int(decided) if decided is not None else 0
        launch = update_launch(self._schedule, update, deciding, handle)
        slot = self._schedule.slot
        image = pack_launch(launch.kernel, launch.operands, self._address, slot)
        return self._add_kernel(graph, launch, image, wait_for)

    def _add_conditional(
        self, graph: Any, node: While | Switch, bodies: tuple[Order, ...], wait_for: list[Any]
    ) -> Any:
        kinds = driver.CUgraphConditionalNodeType
        handle = self._handle(node)
        params = driver.CUgraphNodeParams()
        params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = handle
        params.conditional.type = (
            kinds.CU_GRAPH_COND_TYPE_WHILE
            if isinstance(node, While)
            else kinds.CU_GRAPH_COND_TYPE_SWITCH
        )
        params.conditional.size = len(bodies)
        params.conditional.ctx = _context()
        added = driver.cuGraphAddNode(graph, wait_for or None, None, len(wait_for), params)
        made = check(added, "adding a loop or branch to a graph")
        parts = params.conditional.phGraph_out
        for body, part in zip(bodies, parts, strict=True):
            self._add(part, body, [], handle if isinstance(node, While) else None)
        return made

    def _handle(self, node: Any) -> Any:
        """The conditional handle of a loop or branch; None for another node."""
        if not isinstance(node, (While, Switch)):
            return None
        if id(node) not in self._handles:
            self._handles[id(node)] = check(
                driver.cuGraphConditionalHandleCreate(self._root, _context(), 0, 0),
                "adding a loop or branch to a graph",
            )
        return self._handles[id(node)]

    def _add_kernel(self, graph: Any, launch: Any, image: ParamImage, wait_for: list[Any]) -> Any:
        """Add a kernel node: one that calls repoint, or one that finds what changes in memory."""
        arena = len(self._schedule.externals)
        changing = [r.slot for r in image.relocations if r.slot != arena]
        is_fixed = graph is not self.graph or any(s >= self._schedule.slots for s in changing)
        if is_fixed and changing:
            image, loaded = indirect_image(image, self.slots, arena)
            kernel = frontend.load(launch.kernel, loaded)
        else:
            kernel = frontend.load(launch.kernel)
        bound = BoundImage(image, kernel.order, arena, self._arena.address)
        params = self._params(launch, kernel.kernel, bound)
        # It waits itself for one kernel: it is launched while that one still runs.
        overlaps = (
            self._early
            and kernel.waits
            and len(wait_for) == 1
            and int(wait_for[0]) in self._kernels
        )
        full = [] if overlaps else wait_for
        added = driver.cuGraphAddKernelNode(graph, full or None, len(full), params)
        handle = check(added, f"adding {launch.kernel.name} to a graph")
        if overlaps:
            edge = driver.cuGraphAddDependencies(graph, wait_for, [handle], [_OVERLAPPING], 1)
            check(edge, f"adding {launch.kernel.name} to a graph")
        self._kernels.add(int(handle))
        if launch.kernel.cooperative:
            _make_cooperative(handle)
        if is_fixed:
            self.kept.append(bound)
        else:
            self.nodes.append(KernelNode(handle, bound, params))
        return handle

    def _launches(self, node: Any) -> list[tuple[Any, Any]]:
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
            self.memory.append(memory)
            staged = View(-1, 0, layout)

            def place(view: View) -> Address:
                return self._fixed(memory.address) if view.buffer == -1 else address(view)

            return [
                (copy_launch(source.view, staged), place),
                (copy_launch(staged, target.view), place),
            ]
        return [(node, address)]

    def _address(self, view: View) -> Address:
        return self._fixed(self.slots) if view.buffer == SLOTS else self._schedule.address(view)

    def _fixed(self, address: int) -> Address:
        """An address that doesn't change, relative to the arena's, which doesn't either."""
        return Address(len(self._schedule.externals), address - self._arena.address)

    def _may_overlap(self, source: Access, target: Access) -> bool:
        if source.view == target.view:
            return False
        if source.view.buffer != target.view.buffer:
            # Buffers that overlap at this call conflict wherever they are used; a copy between them
            # is rare enough to stage it always.
            return self._schedule.aliased(source.view.buffer, target.view.buffer)
        return overlap(
            source.view.layout, source.view.offset, target.view.layout, target.view.offset
        )

    def _params(self, launch: Any, kernel: Any, image: BoundImage) -> Any:
        self.kept.append(kernel)
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


def _overlapping() -> Any:
    """An edge along which a kernel is launched before the one that it waits for has ended."""
    edge = driver.CUgraphEdgeData()
    edge.from_port = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    edge.type = int(driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
    return edge


_OVERLAPPING = _overlapping()


def _context() -> Any:
    return check(driver.cuCtxGetCurrent(), "asking for the context")


def _make_cooperative(handle: Any) -> None:
    value = driver.CUkernelNodeAttrValue()
    value.cooperative = 1
    attribute = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    check(driver.cuGraphKernelNodeSetAttribute(handle, attribute, value), "a cooperative launch")


@functools.cache
def _write_slots() -> Any:
    """The kernel that writes up to `_WRITTEN` slots, from the first on."""
    lines = [
        f"    if {index} < count:\n        slots[first + {index}] = values[{index}]"
        for index in range(_WRITTEN)
    ]
    text = "\n".join(["def write_slots(slots, first, count, values):", *lines, ""])
    array = numba_types.array_type(Layout((1,), (8,), np.dtype(np.uint64)))
    argtypes = (array, types.int64, types.int64, types.UniTuple(types.uint64, _WRITTEN))
    return frontend.kernel_ir(generated("write_slots", text, {}), argtypes)


@functools.cache
def _deciding() -> DecidingKernels:
    """How kernels tell a graph what its next node does."""
    decide = cuda.declare_device("cudaGraphSetConditional", "void(uint64, uint32)", abi="c")
    names = {"decide": decide, "uint32": types.uint32}
    options = {"link": [frontend.device_runtime_library()]}
    return DecidingKernels("decide(handle, uint32(decided))", names, options)
