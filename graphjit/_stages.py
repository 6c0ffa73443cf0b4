"""The stages of a graphed function as objects: Traced, Lowered, Compiled."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from graphjit import _scalars, backends
from graphjit._adoption import adopt
from graphjit._array import Array
from graphjit._aval import array_aval
from graphjit._binding import Binding, Overlaps
from graphjit._context import current_stream
from graphjit._direct import DirectCall, Result, fresh_array
from graphjit._errors import ArgumentError, DeviceError
from graphjit._graph import Graph, ScalarRef
from graphjit._guards import Guard
from graphjit._location import called_at
from graphjit._locks import make_lock
from graphjit._signature import Key, Signature
from graphjit.schedule.schedule import Schedule, schedule


@dataclass(frozen=True)
class DynamicLeaf:
    """A result leaf that the graph computes: its place in `Graph.outputs`."""

    index: int


@dataclass(frozen=True)
class ArgumentLeaf:
    """A result leaf that is an argument itself: its place among the argument leaves."""

    index: int


@dataclass(frozen=True, eq=False)
class FixedLeaf:
    """A result leaf that doesn't depend on the arguments.

    An array that the function made is copied for each call; one it closes over is itself.
    """

    value: Any
    copied: bool


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
    """

    graph: Graph
    key: Key
    closures: dict[int, Any]
    guards: tuple[Guard, ...]
    signature: Signature
    _out_tree: Any
    _out_leaves: tuple[DynamicLeaf | ArgumentLeaf | FixedLeaf, ...]

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
        plan = schedule(self.graph)
        backends.get(device.backend).check(plan)
        return Lowered(self, plan)


@dataclass(frozen=True, eq=False, repr=False)
class Lowered:
    """A traced function with its schedule.

    Parameters
    ----------
    traced : Traced
        Where it comes from.
    schedule : Schedule
        How it runs when no arguments overlap.
    """

    traced: Traced
    schedule: Schedule

    def __repr__(self) -> str:
        return f"<Lowered {self.traced.graph.name} for {self.traced.key.device}>"

    def as_text(self) -> str:
        """The schedule: each node, what it waits for, and its source line.

        Returns
        -------
        str
        """
        return str(self.schedule)

    def compile(self) -> Compiled:
        """Instantiate the graph on its device.

        Returns
        -------
        Compiled
        """
        return Compiled(self)


# From the leaves as given, the call's memory and the scalars' values to a leaf of the result.
_Result = Callable[[tuple[Any, ...], Any, Sequence[Any]], Any]


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
        graph = self.traced.graph
        self._device = self.traced.key.device
        self._backend = backends.get(self._device.backend)
        self._executables: dict[Overlaps, Any] = {}
        self._lock = make_lock()
        self._closed = False
        self.used = 0  # when it was called last, by its cache's clock
        self._scalars = graph.scalars
        self._single = self.traced._out_tree.is_leaf() and len(self.traced._out_leaves) == 1
        self._scalar_inputs = tuple(
            index for index, value in enumerate(graph.inputs) if isinstance(value, ScalarRef)
        )
        externals = lowered.schedule.externals
        given = externals[: len(externals) - len(graph.results)]
        self._binding = Binding(
            graph, given, self.traced.closures, self.traced.key.avals, self._device
        )
        self._results = tuple(map(self._result, self.traced._out_leaves))
        self._executable(())
        self.direct = self._direct_call() if self._binding.is_direct else None

    def __repr__(self) -> str:
        return f"<Compiled {self.traced.graph.name} for {self._device}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay on arguments of the shapes and dtypes it was compiled for."""
        signature = self.traced.signature
        arguments = signature.arguments(signature.bind(args, kwargs))
        if arguments.key != self.traced.key:
            raise ArgumentError(
                f"{signature.name} was compiled for other arguments: "
                + "; ".join(differences(self.traced.key, arguments.key))
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
        if self._closed:
            raise RuntimeError(f"{self.traced.graph.name}: this compiled function is closed")
        stream = current_stream()
        scalars: Sequence[Any] = ()
        if self._scalars:
            scalars = _scalars.evaluate(self._scalars, [leaves[i] for i in self._scalar_inputs])
        call = self._binding.bind(leaves, stream)
        executable = self._executables.get(call.overlaps) or self._executable(call.overlaps)
        executable.run(call.pointers, scalars, stream)
        call.finish(stream)
        results = [result(given, call, scalars) for result in self._results]
        if self._single:
            return results[0]
        return optree.tree_unflatten(self.traced._out_tree, results)

    def close(self) -> None:
        """Free what the executables own; a second call does nothing."""
        with self._lock:
            self._closed = True
            self.direct = None
            executables, self._executables = self._executables, {}
        for executable in executables.values():
            executable.close()

    def _executable(self, overlaps: Overlaps) -> Any:
        executable = self._executables.get(overlaps)
        if executable is None:
            with self._lock:
                executable = self._executables.get(overlaps)
                if executable is None:
                    plan = (
                        schedule(self.traced.graph, overlaps) if overlaps else self.lowered.schedule
                    )
                    executable = self._backend.build(plan, self._device)
                    self._executables[overlaps] = executable
        return executable

    def _direct_call(self) -> DirectCall | None:
        """The short way through a call, where the results allow it."""
        fresh = {buffer: n for n, buffer in enumerate(self.traced.graph.results)}
        results: list[Result] = []
        for leaf in self.traced._out_leaves:
            if not isinstance(leaf, DynamicLeaf):
                results.append(self._result(leaf))
                continue
            output = self.traced.graph.outputs[leaf.index]
            if isinstance(output, ScalarRef):
                results.append(self._result(leaf))
            elif output.view.buffer in fresh:
                aval = array_aval(output.view.layout, self._device)
                index = fresh[output.view.buffer]
                results.append(fresh_array(index, output.view.offset, aval))
            else:
                return None  # a view of an argument or closure
        tree = self.traced._out_tree
        # Not a bound method: the two would keep each other alive.
        executables, this = self._executables, weakref.ref(self)

        def executable(overlaps: Overlaps) -> Any:
            found = executables.get(overlaps)
            if found is None:
                compiled = this()
                assert compiled is not None
                found = compiled._executable(overlaps)
            return found

        return DirectCall(
            self._binding,
            self._scalars,
            self._scalar_inputs,
            tuple(results),
            executable,
            None if self._single else functools.partial(optree.tree_unflatten, tree),
        )

    def _result(self, leaf: DynamicLeaf | ArgumentLeaf | FixedLeaf) -> _Result:
        """What makes one leaf of the result."""
        if isinstance(leaf, FixedLeaf):
            if leaf.copied:
                return lambda given, call, scalars: leaf.value.copy()
            return lambda given, call, scalars: leaf.value
        if isinstance(leaf, ArgumentLeaf):
            return lambda given, call, scalars: given[leaf.index]
        output = self.traced.graph.outputs[leaf.index]
        if isinstance(output, ScalarRef):
            return lambda given, call, scalars: scalars[output.index]
        view = output.view
        aval = array_aval(view.layout, self._device, view.buffer in self._binding.readonly)
        return lambda given, call, scalars: call.array(view.buffer, view.offset, aval)


def differences(was: Key, now: Key) -> list[str]:
    """What makes two keys differ, in the user's terms."""
    found = []
    if was.device != now.device:
        found.append(f"device was {was.device} and is {now.device}")
    for before, after in zip(was.statics, now.statics, strict=False):
        if before != after:
            found.append(f"static argument was {before!r} and is {after!r}")
    if was.tree != now.tree:
        found.append(f"structure was {was.tree} and is {now.tree}")
    else:
        for index, (before_aval, after_aval) in enumerate(zip(was.avals, now.avals, strict=True)):
            if before_aval != after_aval:
                found.append(
                    f"argument {was.leaf_name(index)} was {before_aval} and is {after_aval}"
                )
    return found
