# cython: nonecheck=True
"""Finding what was compiled for a call's arguments, where that takes no more than looking at them.

Compiled where there is a C compiler (see `setup.py`): it runs at every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from optree import tree_flatten

from graphjit._activity import Activity, activity
from graphjit._adoption import adopt
from graphjit._context import current_stream, current_trace
from graphjit._errors import IntegerRangeError
from graphjit._guards import changed
from graphjit._locks import Gate
from graphjit._memory import Handle
from graphjit._pytrees import NAMESPACE, Static, gate, is_leaf
from graphjit._replay import Replay

is_compiled = not __file__.endswith(".py")
"""Whether the call path is compiled; without a C compiler it is Python, and slower."""

_flatten: Any = tree_flatten
_namespace = NAMESPACE
_gate: Gate = gate
# Static arguments that stand for themselves in a key; floats don't (0.0 and -0.0 are equal).
_EXACT = frozenset((int, bool, str, bytes, type(None)))


# Named, since Cython takes the bare type for one of C in signatures of compiled functions.
Values = tuple[Any, ...]


class Known:
    """A compiled function, and how the arguments of a certain call become its leaves.

    Parameters
    ----------
    owner : Compiled
        What it is, which lives as long as this.
    replay : Replay
        What to run.
    guards : tuple of Guard
        What must not have changed.
    order : tuple of int or None
        For each leaf its place among the leaves of the arguments as given, or -1 for one of
        `defaults`; None where they are the same.
    defaults : tuple
        For each leaf the default, if it isn't given.
    kind : tuple
        The call's key.
    """

    __slots__ = ("defaults", "guards", "is_direct", "kind", "order", "owner", "replay")

    def __init__(
        self,
        owner: Any,
        replay: Replay,
        guards: Values,
        order: tuple[int, ...] | None,
        defaults: Values,
        kind: Values,
    ) -> None:
        self.owner = owner
        self.replay = replay
        self.guards = guards
        self.kind = kind
        # Whether the avals and classes of the arguments are all of the key.
        self.is_direct = order is None and len(kind) == len(defaults)
        self.order = order
        self.defaults = defaults


class Dispatcher:
    """Something called with arrays and numbers, which remembers what each kind of call runs.

    A call is told apart by the avals of its arrays and the classes of its numbers, by position and
    by name, and where containers are among the arguments by their structure. One that it doesn't
    know, `_call_anew` answers.

    Parameters
    ----------
    statics : dict
        The names of static parameters, by place and by name.
    name : str
        The function's, for messages.
    """

    __slots__ = (
        "__weakref__",
        "_activity",
        "_clock",
        "_containers",
        "_foreign",
        "_hits",
        "_known",
        "_last",
        "_statics",
        "_title",
    )

    def __init__(self, statics: dict[int | str, str], name: str) -> None:
        self._activity: Activity = activity
        self._known: dict[Values, Known] = {}
        # What the last call found, if that takes no more than looking at its arguments.
        self._last: Known | None = None
        self._statics = statics
        self._title = name
        # Classes that calls came with and that say too little of an argument: those of other
        # libraries' arrays and of containers, None's among them; and those of containers alone.
        self._foreign: set[type] = set()
        self._containers: set[type] = set()
        self._hits = 0
        self._clock = 0

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._activity.traces and current_trace() is not None:
            return self._call_traced(args, kwargs)
        known: Known | None = self._last
        if known is not None and not kwargs and self._is_like_last(args, known.kind):
            if changed(known.guards) is None:
                return self._run(known, args, args, args, kwargs)
        return self._look_up(args, kwargs)

    def _run(
        self, known: Known, leaves: Values, given: Values, args: Values, kwargs: dict[str, Any]
    ) -> Any:
        """Answer a call with what is known to answer it."""
        self._hits += 1
        self._clock += 1
        known.replay.used = self._clock
        stream = current_stream() if self._activity.streams else None
        try:
            return known.replay.run(leaves, given, stream)
        except IntegerRangeError:
            # An integer that Numba types as uint64: another signature.
            self._hits -= 1
            return self._call_anew(args, kwargs, known.kind)

    def _is_like_last(self, args: Values, kind: Values) -> bool:
        """Whether arguments have the avals and classes of the last call's."""
        if len(args) != len(kind):
            return False
        for place in range(len(args)):
            value = args[place]
            if isinstance(value, Handle):
                array: Handle = value
                if array._aval is not kind[place]:
                    return False
            elif type(value) is not kind[place]:
                return False
        return True

    def _look_up(self, args: Values, kwargs: dict[str, Any]) -> Any:
        """Answer a call that isn't like the last one."""
        given = args
        leaves = args
        if kwargs:
            given = leaves = (*args, *kwargs.values())
        key: list[Any] = []
        for value in given:
            if isinstance(value, Handle):
                array: Handle = value
                key.append(array._aval)
            else:
                key.append(type(value))
                if type(value) in self._foreign:
                    given, leaves = self._looked_into(given, key)
                    break
        if kwargs:
            key.append(tuple(kwargs))
        if self._statics:
            self._add_statics(args, kwargs, key)
        kind = tuple(key)
        known: Known | None = self._known.get(kind)
        if known is not None and changed(known.guards) is None:
            if leaves is args and known.is_direct:
                self._last = known
            if known.order is not None:
                leaves = _ordered(leaves, known)
                given = _ordered(given, known)
            return self._run(known, leaves, given, args, kwargs)
        return self._call_anew(args, kwargs, kind)

    def _looked_into(self, given: Values, key: list[Any]) -> tuple[Values, Values]:
        """The leaves of the arguments, the same with other libraries' arrays as Arrays; the key."""
        key.clear()
        structure = None
        for value in given:
            if type(value) in self._containers:
                _gate.enter()
                try:
                    flat, structure = _flatten(given, namespace=_namespace)
                finally:
                    _gate.leave()
                given = tuple(flat)
                break
        leaves = []
        for value in given:
            leaf = value
            if type(value) in self._foreign:
                leaf = adopt(value)
                if leaf is None:  # a host array, to be uploaded
                    leaf = value
            if isinstance(leaf, Handle):
                array: Handle = leaf
                key.append(array._aval)
            else:
                key.append(type(leaf))
            leaves.append(leaf)
        if structure is not None:
            key.append(structure)
        return given, tuple(leaves)

    def _add_statics(self, args: Values, kwargs: dict[str, Any], key: list[Any]) -> None:
        """Add the values of static arguments to a key."""
        for place, value in enumerate(args):
            if place in self._statics:
                key.append(self._exact(place, value))
        for name, value in kwargs.items():
            if name in self._statics:
                key.append(self._exact(name, value))

    def _exact(self, place: int | str, value: Any) -> Any:
        if type(value) in _EXACT:
            return value
        return Static(self._statics[place], value, self._title)

    def _meet(self, arguments: Sequence[Any], given: Values, leaves: Values) -> None:
        """Note which classes say too little of an argument.

        Parameters
        ----------
        arguments : sequence
            Those that aren't static.
        given, leaves : tuple
            Their leaves, before and after other libraries' arrays were adopted.
        """
        for value in arguments:
            if not isinstance(value, Handle) and not is_leaf(value):
                self._containers.add(type(value))
        self._foreign |= self._containers
        for value, leaf in zip(given, leaves, strict=True):
            if not isinstance(value, Handle) and isinstance(leaf, (Handle, np.ndarray)):
                self._foreign.add(type(value))

    def _call_traced(self, args: Values, kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _call_anew(self, args: Values, kwargs: dict[str, Any], kind: Values) -> Any:
        raise NotImplementedError


def _ordered(given: Values, known: Known) -> Values:
    """Arguments as given, in the order of the leaves, defaults filled in."""
    assert known.order is not None
    return tuple(
        [
            default if place < 0 else given[place]
            for place, default in zip(known.order, known.defaults, strict=True)
        ]
    )
