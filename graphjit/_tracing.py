"""Running a function on tracers, and what it must not do with them."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

import numpy as np
import optree

from graphjit._aval import ArrayAval
from graphjit._errors import TraceError
from graphjit._guards import Guard, array_guard
from graphjit._mathematics import original_of, stand_in_for, standing_in
from graphjit._names import guards_of
from graphjit._options import Options
from graphjit._pytrees import NAMESPACE, flatten
from graphjit._refusals import refused_by_others
from graphjit._result_leaves import ArgumentLeaf, DynamicLeaf, FixedLeaf
from graphjit._signature import Arguments, Key, Signature
from graphjit._stages import Traced
from graphjit._trace import Trace
from graphjit._tracers import Tracer


def trace(
    function: Callable[..., Any], signature: Signature, arguments: Arguments, options: Options
) -> Traced:
    """Run a function on tracers and record what it does.

    Parameters
    ----------
    function : callable
        The user's function.
    signature : Signature
        Its parameters.
    arguments : Arguments
        The arguments to trace for.
    options : Options
        How calls treat memory.

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
        for name, aval in zip(key.leaf_names(), key.avals, strict=True):
            if isinstance(aval, ArrayAval):
                tracers.append(recorder.array_input(aval.layout, name, aval.readonly, aval.record))
            else:
                tracers.append(recorder.scalar_input(aval.type, name))
        unflattened = optree.tree_unflatten(key.tree, tracers)
        dynamic = dict(zip(key.names, unflattened, strict=True))
        kept = _Kept(function, guards)
        values = tuple(
            stand_in_for(statics[name]) if name in statics else dynamic[name]
            for name in signature.names
        )
        places = (place for guard in guards for place in guard.places())
        try:
            with standing_in(places):
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
        described: list[DynamicLeaf | ArgumentLeaf | FixedLeaf] = []
        for leaf in out_leaves:
            if isinstance(leaf, Tracer):
                outputs.append(recorder.output(leaf))
                described.append(
                    ArgumentLeaf(inputs[id(leaf)])
                    if id(leaf) in inputs
                    else DynamicLeaf(len(outputs) - 1)
                )
            else:
                leaf = original_of(leaf)
                _refuse_hidden_tracers(leaf, signature.name)
                described.append(
                    FixedLeaf(leaf, isinstance(leaf, np.ndarray) and id(leaf) not in known)
                )
        graph = recorder.graph(tuple(outputs))
    return Traced(
        graph,
        key,
        recorder.closures,
        guards,
        signature,
        options,
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
            what = key.leaf_names()[index] if same else "one of its arguments"
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
