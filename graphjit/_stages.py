"""The stages of a graphed function as objects: Traced, Lowered, Compiled."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from graphjit import _scalars, backends
from graphjit._array import Array, adopt
from graphjit._aval import ArrayAval, array_aval
from graphjit._binding import Binding, Overlaps
from graphjit._context import current_stream
from graphjit._direct import DirectCall, Result, fresh_array
from graphjit._errors import ArgumentError, DeviceError, TraceError
from graphjit._graph import Graph, ScalarRef
from graphjit._guards import Guard, array_guard, guards_of
from graphjit._location import user_location
from graphjit._locks import make_lock
from graphjit._signature import NAMESPACE, Arguments, Key, Signature, flatten
from graphjit._trace import Trace
from graphjit._tracers import Tracer, refused_by_others
from graphjit.schedule.schedule import Schedule, schedule


@dataclass(frozen=True)
class _Dynamic:
    """A result leaf that the graph computes: its place in `Graph.outputs`."""

    index: int


@dataclass(frozen=True)
class _Argument:
    """A result leaf that is an argument itself: its place among the argument leaves."""

    index: int


@dataclass(frozen=True, eq=False)
class _Fixed:
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
    _out_leaves: tuple[_Dynamic | _Argument | _Fixed, ...]

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
                    f"{device}; move one of them\n  called at {user_location()}"
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
            if not isinstance(leaf, _Dynamic):
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

    def _result(self, leaf: _Dynamic | _Argument | _Fixed) -> _Result:
        """What makes one leaf of the result."""
        if isinstance(leaf, _Fixed):
            if leaf.copied:
                return lambda given, call, scalars: leaf.value.copy()
            return lambda given, call, scalars: leaf.value
        if isinstance(leaf, _Argument):
            return lambda given, call, scalars: given[leaf.index]
        output = self.traced.graph.outputs[leaf.index]
        if isinstance(output, ScalarRef):
            return lambda given, call, scalars: scalars[output.index]
        view = output.view
        aval = array_aval(view.layout, self._device, view.buffer in self._binding.readonly)
        return lambda given, call, scalars: call.array(view.buffer, view.offset, aval)


def trace(function: Callable[..., Any], signature: Signature, arguments: Arguments) -> Traced:
    """Run a function on tracers and record what it does.

    Parameters
    ----------
    function : callable
        The user's function.
    signature : Signature
        Its parameters.
    arguments : Arguments
        The arguments to trace for.

    Returns
    -------
    Traced
    """
    key = arguments.key
    recorder = Trace(signature.name)
    statics = {static.name: static.value for static in key.statics}
    # Read before the trace: a name that is rebound during it counts as changed.
    guards = guards_of(function, statics.values())
    with recorder.recording():
        tracers: list[Tracer] = []
        for index, aval in enumerate(key.avals):
            name = key.leaf_name(index)
            if isinstance(aval, ArrayAval):
                tracers.append(recorder.array_input(aval.layout, name, aval.readonly, aval.record))
            else:
                tracers.append(recorder.scalar_input(aval.type, name))
        unflattened = optree.tree_unflatten(key.tree, tracers)
        dynamic = dict(zip(key.names, unflattened, strict=True))
        kept = _Kept(function, guards)
        values = tuple(
            statics[name] if name in statics else dynamic[name] for name in signature.names
        )
        try:
            result = signature.call(function, values)
        except Exception as error:
            refused = refused_by_others(error)
            if refused is None:
                raise
            raise refused from error
        kept.check(signature.name)
        _refuse_changed_arguments(unflattened, tracers, key, signature.name)
        out_leaves, out_tree = flatten(result)
        # A container that the function itself changes (a log it appends to) is none it depends on.
        guards = tuple(guard for guard in guards if not guard.is_container or guard.holds())
        guards += _guards_after(function, statics, guards)
        guards += tuple(
            array_guard(array, f"the array {recorder.name}'s graph calls c{index}")
            for index, array in enumerate(recorder.closures.values())
            if isinstance(array, np.ndarray)
        )
        known = {id(guard.value) for guard in guards}
        inputs = {id(tracer): index for index, tracer in enumerate(tracers)}
        outputs = []
        described: list[_Dynamic | _Argument | _Fixed] = []
        for leaf in out_leaves:
            if isinstance(leaf, Tracer):
                outputs.append(recorder.output(leaf))
                described.append(
                    _Argument(inputs[id(leaf)])
                    if id(leaf) in inputs
                    else _Dynamic(len(outputs) - 1)
                )
            else:
                _refuse_hidden_tracers(leaf, signature.name)
                described.append(
                    _Fixed(leaf, isinstance(leaf, np.ndarray) and id(leaf) not in known)
                )
        graph = recorder.graph(tuple(outputs))
    return Traced(
        graph,
        key,
        recorder.closures,
        guards,
        signature,
        out_tree,
        tuple(described),
    )


class _Kept:
    """Where a function could store traced values, as it was before the trace."""

    def __init__(self, function: Callable[..., Any], guards: tuple[Guard, ...]) -> None:
        instance = getattr(function, "__self__", None)
        attributes = getattr(instance, "__dict__", None)
        self._attributes = attributes if isinstance(attributes, dict) else {}
        self._before = dict(self._attributes)
        self._guards = guards

    def check(self, name: str) -> None:
        """Put things back and raise if traced values were stored there."""
        stored = [key for key, value in self._attributes.items() if isinstance(value, Tracer)]
        if stored:
            self._attributes.clear()
            self._attributes.update(self._before)
        for guard in self._guards:
            if isinstance(guard.holder, dict) and isinstance(guard.current(), Tracer):
                stored.append(guard.name)
                guard.holder[guard.name] = guard.value
        if stored:
            raise TraceError(
                f"{name} stored a traced value in {', '.join(map(repr, dict.fromkeys(stored)))}; "
                "it exists only while the function is traced: return it, and assign it outside"
            )


def _refuse_changed_arguments(arguments: Any, tracers: list[Tracer], key: Key, name: str) -> None:
    """Raise if the function put something else into a container that it was given."""
    leaves, tree = flatten(arguments)
    same = tree == key.tree and len(leaves) == len(tracers)
    for index, tracer in enumerate(tracers):
        if not same or leaves[index] is not tracer:
            what = key.leaf_name(index) if same else "one of its arguments"
            raise TraceError(
                f"{name} changed the contents of {what}: a replay can write arrays, but not put "
                "others into the caller's lists, dicts and objects; return the new value"
            )


def _guards_after(
    function: Callable[..., Any], statics: dict[str, Any], before: tuple[Guard, ...]
) -> tuple[Guard, ...]:
    """Guards of names that came into being during the trace, such as imported modules'."""
    known = {(id(guard.holder), guard.name) for guard in before}
    return tuple(
        guard
        for guard in guards_of(function, statics.values())
        if (id(guard.holder), guard.name) not in known and not guard.is_container
    )


def _refuse_hidden_tracers(leaf: Any, name: str) -> None:
    """Raise if an object that is returned as it is holds tracers, which would leak with it."""
    inside: list[Any] = list(getattr(leaf, "__dict__", {}).values())
    if isinstance(leaf, set | frozenset | list | tuple | dict):
        inside += leaf
    elif isinstance(leaf, Iterator | KeysView | ValuesView | ItemsView):
        raise TraceError(
            f"{name} returned a {type(leaf).__name__}, which is gone through while tracing; "
            "return a tuple, a list or a dict"
        )
    if any(isinstance(item, Tracer) for item in inside):
        raise TraceError(
            f"{name} returned a {type(leaf).__name__} that holds traced values; return them in "
            "tuples, lists, dicts or dataclasses, or register the class with optree in the "
            f"namespace {NAMESPACE!r}"
        )


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
