"""The stages of a graphed function as objects: Traced, Lowered, Compiled."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from graphjit import backends
from graphjit._adoption import adopt
from graphjit._array import Array
from graphjit._aval import array_aval
from graphjit._binding import Binding
from graphjit._context import current_stream
from graphjit._differences import differences
from graphjit._errors import ArgumentError, ClosedError, DeviceError
from graphjit._graph import Graph
from graphjit._guards import Guard
from graphjit._inputs import Input
from graphjit._location import called_at
from graphjit._locks import make_lock
from graphjit._memory_analysis import MemoryAnalysis, analyse
from graphjit._nodes import Access, ScalarRef
from graphjit._options import Options
from graphjit._replay import (
    ARGUMENT,
    ARGUMENT_VIEW,
    CLOSURE_VIEW,
    COPIED,
    FIXED,
    FRESH,
    SCALAR,
    Overlaps,
    Replay,
    Result,
)
from graphjit._result_leaves import ArgumentLeaf, DynamicLeaf, FixedLeaf, ResultLeaf
from graphjit._signature import Key, Signature
from graphjit._static_results import StaticResults
from graphjit.backends.binding_stats import BindingStats
from graphjit.schedule.schedule import Schedule, schedule
from graphjit.transforms.constants import without_constants
from graphjit.transforms.control import lower_control
from graphjit.transforms.copies import without_copies
from graphjit.transforms.dead_work import without_dead_work
from graphjit.transforms.fusion import fuse
from graphjit.transforms.fusion_report import FusionReport
from graphjit.transforms.removed import Removed


@dataclass(frozen=True, eq=False, repr=False)
class Traced:
    """A function traced for arguments of certain shapes and dtypes.

    Parameters
    ----------
    graph : Graph
        What it does.
    key : Key
        What it was traced for.
    closures : dict
        Buffer index and array, for each array it closes over.
    guards : tuple of Guard
        Outside names it was traced with.
    signature : Signature
        The function's parameters.
    options : Options
        How calls treat memory.
    """

    graph: Graph
    key: Key
    closures: dict[int, Any]
    guards: tuple[Guard, ...]
    signature: Signature
    options: Options
    _out_tree: Any
    _out_leaves: tuple[ResultLeaf, ...]

    def __repr__(self) -> str:
        return f"<Traced {self.graph.name}: {len(self.graph.nodes)} nodes>"

    def lower(self) -> Lowered:
        """Schedule the graph for its device.

        Returns
        -------
        Lowered

        Raises
        ------
        UnsupportedKernelError
            If the device's backend can't run one of the kernels; nothing has run then.
        DeviceError
            If a closed-over array is on another device.
        """
        device = self.key.device
        for value in self.closures.values():
            array = value if isinstance(value, np.ndarray) else adopt(value)
            if isinstance(array, Array) and array._device != device:
                raise DeviceError(
                    f"{self.graph.name} closes over an array on {array._device}, and is called on "
                    f"{device}; move one of them{called_at()}"
                )
        graph = lower_control(self.graph)
        removed: tuple[Removed, ...] = ()
        for name, without in (("copies", without_copies), ("dead_work", without_dead_work)):
            if name in self.options.optimize:
                graph, more = without(graph)
                removed += more
        constant = None
        if "constants" in self.options.optimize:
            graph, constant, more = without_constants(graph)
            removed += more
        plan, report = self.schedule(graph)
        backends.get(device.backend).check(plan)
        return Lowered(self, graph, constant, plan, removed, report)

    def schedule(self, graph: Graph, overlaps: Overlaps = ()) -> tuple[Schedule, FusionReport]:
        """How the graph runs where these arguments overlap.

        Parameters
        ----------
        graph : Graph
            The graph, with its control lowered.
        overlaps : tuple of tuple of int
            Groups of buffers that share memory.

        Returns
        -------
        Schedule, FusionReport
            And what became one launch.
        """
        report = FusionReport()
        if "fusion" in self.options.optimize:
            contracts = backends.get(self.key.device.backend).contracts
            graph, report = fuse(graph, overlaps, contracts)
        return schedule(graph, overlaps, self.options.reuse_from), report


@dataclass(frozen=True, eq=False, repr=False)
class Lowered:
    """A traced function with its schedule.

    Parameters
    ----------
    traced : Traced
        Where it comes from.
    graph : Graph
        Its graph, with loops and branches as devices run them.
    constant : Graph or None
        What is computed once, when the function is compiled.
    schedule : Schedule
        How it runs when no arguments overlap.
    removed : tuple of Removed
        The work that was left out, and why it could be.
    """

    traced: Traced
    graph: Graph
    constant: Graph | None
    schedule: Schedule
    removed: tuple[Removed, ...]
    _report: FusionReport

    def __repr__(self) -> str:
        return f"<Lowered {self.traced.graph.name} for {self.traced.key.device}>"

    def as_text(self) -> str:
        """The schedule: each node, what it waits for, and its source line.

        Returns
        -------
        str
        """
        return str(self.schedule)

    def fusion_report(self) -> FusionReport:
        """Which launches became one, and why others that wait for each other didn't.

        Returns
        -------
        FusionReport

        Examples
        --------
        >>> import graphjit as gj
        >>> from graphjit import kernels
        >>> double = kernels.map(lambda x: 2 * x)
        >>> f = gj.graphed(lambda x: double(double(x)))
        >>> with gj.use_backend("cpu"):
        ...     len(f.lower(gj.zeros(10)).fusion_report().fused)
        1
        """
        return self._report

    def memory_analysis(self) -> MemoryAnalysis:
        """The memory that a call uses, and how little it could be.

        Returns
        -------
        MemoryAnalysis

        Examples
        --------
        >>> import graphjit as gj
        >>> def f(x):
        ...     y = x.copy()
        ...     return y.copy()
        >>> gj.graphed(f).lower(gj.zeros(1000)).memory_analysis().results
        8000
        """
        return analyse(self.schedule)

    def compile(self) -> Compiled:
        """Instantiate the graph on its device.

        Returns
        -------
        Compiled
        """
        return Compiled(self)


class Compiled:
    """A function compiled for arguments of certain shapes and dtypes; call it to replay.

    Parameters
    ----------
    lowered : Lowered
        Where it comes from.
    """

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.traced = lowered.traced
        self._graph = graph = lowered.graph
        self._device = self.traced.key.device
        self._backend = backends.get(self._device.backend)
        self._executables: dict[Overlaps, Any] = {}
        self._lock = make_lock()
        self._closed = False
        externals = lowered.schedule.externals
        given = externals[: len(externals) - len(graph.results)]
        self._constants = self._compute_constants()
        closures = {**self.traced.closures, **self._constants}
        self.binding = Binding(graph, given, closures, self.traced.key.avals, self._device)
        self.replay = self._make_replay()

    def __repr__(self) -> str:
        return f"<Compiled {self.traced.graph.name} for {self._device}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Replay on arguments of the shapes and dtypes it was compiled for."""
        signature = self.traced.signature
        arguments = signature.arguments(signature.bind(args, kwargs))
        if arguments.key != self.traced.key:
            raise ArgumentError(
                f"{signature.name} was compiled for other arguments: "
                + "; ".join(differences(self.traced.key, arguments.key))
                + called_at()
            )
        return self.run(arguments.leaves, arguments.given)

    def run(self, leaves: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
        """Replay on argument leaves whose key is this object's.

        Parameters
        ----------
        leaves : tuple
            Arrays, host arrays and numbers.
        given : tuple
            The same, as the caller gave them.
        """
        stream = current_stream()
        staged = self.binding.stage(leaves, stream)
        result = self.replay.run(staged.leaves, given, stream, staged.closures)
        staged.finish()
        return result

    def _compute_constants(self) -> dict[int, Array]:
        """What is the same at every call, by buffer."""
        graph = self.lowered.constant
        if graph is None:
            return {}
        buffers = [output.view.buffer for output in graph.outputs if isinstance(output, Access)]
        leaves = tuple(map(DynamicLeaf, range(len(buffers))))
        key, options = self.traced.key, self.traced.options
        traced = dataclasses.replace(
            self.traced,
            graph=graph,
            key=dataclasses.replace(key, tree=_tree(()), avals=(), names=()),
            closures={},
            options=Options(
                reuse_from=options.reuse_from, optimize=options.optimize - {"constants"}
            ),
            _out_tree=_tree(leaves),
            _out_leaves=leaves,
        )
        return dict(zip(buffers, traced.lower().compile().run((), ()), strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that it owns, besides arguments and results."""
        executables = list(self._executables.values())
        owners = [*executables, *self._constants.values()]
        return sum(int(owner.nbytes) for owner in owners)

    def binding_stats(self) -> BindingStats:
        """How the calls so far were bound to their memory.

        Returns
        -------
        BindingStats

        Examples
        --------
        >>> import graphjit as gj
        >>> compiled = gj.graphed(lambda x: x.copy()).lower(gj.zeros(3)).compile()
        >>> _ = compiled(gj.zeros(3))
        >>> compiled.binding_stats().rebound
        1
        """
        found = [executable.binding_stats() for executable in list(self._executables.values())]
        return sum(found, BindingStats())

    def close(self) -> None:
        """Free what the executables own; a second call does nothing."""
        with self._lock:
            self._closed = True
            executables = list(self._executables.values())
        for executable in executables:
            executable.close()

    def _executable(self, overlaps: Overlaps) -> Any:
        executable = self._executables.get(overlaps)
        if executable is None:
            with self._lock:
                if self._closed:
                    raise ClosedError("this compiled function was closed")
                executable = self._executables.get(overlaps)
                if executable is None:
                    plan, options = self.lowered.schedule, self.traced.options
                    if overlaps:
                        plan, _ = self.traced.schedule(self._graph, overlaps)
                    executable = self._backend.build(plan, self._device, options)
                    self._executables[overlaps] = executable
        return executable

    def _make_replay(self) -> Replay:
        graph, binding, options = self._graph, self.binding, self.traced.options
        allocators = tuple(
            self._backend.allocator(self._device, graph.buffers[buffer].nbytes)
            for buffer in graph.results
        )
        static = None
        if options.outputs == "static":
            static = StaticResults(allocators, binding.sizes, binding.duplicate, graph.name)
        tree = self.traced._out_tree
        single = tree.is_leaf() and len(self.traced._out_leaves) == 1
        # Not a bound method: the two would keep each other alive.
        executables, this = self._executables, weakref.ref(self)

        def executable(overlaps: Overlaps) -> Any:
            found = executables.get(overlaps)
            if found is None:
                compiled = this()
                if compiled is None:
                    raise ClosedError("this compiled function is gone")
                found = compiled._executable(overlaps)
            return found

        return Replay(
            inputs=binding.inputs,
            closures=() if binding.uploads_closures else binding.closures(),
            allocators=allocators,
            scalars=graph.scalars,
            scalar_inputs=tuple(
                index for index, value in enumerate(graph.inputs) if isinstance(value, ScalarRef)
            ),
            results=tuple(map(self._result, self.traced._out_leaves)),
            unflatten=None if single else functools.partial(optree.tree_unflatten, tree),
            overlaps=binding.overlaps,
            executable=executable,
            donated=self._donated(),
            static=static,
            holds=self._device.backend == "cpu",
            name=graph.name,
        )

    def _donated(self) -> tuple[Input, ...]:
        """The arrays of the donated arguments."""
        key, names = self.traced.key, self.traced.options.donated
        if not names:
            return ()
        paths = key.tree.paths()
        return tuple(
            entry for entry in self.binding.inputs if key.names[paths[entry.leaf][0]] in names
        )

    def _result(self, leaf: ResultLeaf) -> Result:
        """What makes one leaf of the result."""
        if isinstance(leaf, FixedLeaf):
            return Result(COPIED if leaf.copied else FIXED, value=leaf.value)
        if isinstance(leaf, ArgumentLeaf):
            return Result(ARGUMENT, leaf.index)
        output = self._graph.outputs[leaf.index]
        if isinstance(output, ScalarRef):
            return Result(SCALAR, output.index)
        view, binding, results = output.view, self.binding, self._graph.results
        aval = array_aval(view.layout, self._device, view.buffer in binding.readonly)
        if view.buffer in results:
            return Result(FRESH, results.index(view.buffer), view.offset, aval)
        if view.buffer in binding.input_of:
            source = binding.input_of[view.buffer]
            return Result(ARGUMENT_VIEW, source.leaf, source.low + view.offset, aval)
        place, low = binding.closure_of[view.buffer]
        return Result(CLOSURE_VIEW, place, low + view.offset, aval)


def _tree(leaves: tuple[Any, ...]) -> Any:
    """The structure of a tuple of leaves."""
    structure: Any = optree.tree_structure
    return structure(leaves)
