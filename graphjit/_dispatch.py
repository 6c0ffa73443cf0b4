"""Finding what was compiled for a call's arguments, where that takes no more than looking at them.

Compiled where there is a C compiler (see `setup.py`): it runs at every call.
"""

from __future__ import annotations

from typing import Any

from graphjit._activity import Activity, activity
from graphjit._adoption import adopt
from graphjit._context import current_stream, current_trace
from graphjit._errors import IntegerRangeError
from graphjit._guards import changed
from graphjit._memory import Handle
from graphjit._replay import Replay

is_compiled = not __file__.endswith(".py")
"""Whether the call path is compiled; without a C compiler it is Python, and slower."""

# Static arguments that stand for themselves in a key; floats don't (0.0 and -0.0 are equal).
_EXACT = frozenset((int, bool, str, bytes, type(None)))


# Named, since Cython takes the bare type for one of C in signatures of compiled functions.
Values = tuple[Any, ...]


class Known:
    """A compiled function, and how the arguments of a certain call become its leaves.

    Parameters
    ----------
    replay : Replay
        What to run.
    guards : tuple of Guard
        What must not have changed.
    order : tuple of int or None
        For each leaf its place among the arguments as given, or -1 for one of `defaults`; None
        where the leaves are the arguments.
    defaults : tuple
        For each leaf the default, if it isn't given.
    kind : tuple
        The call's key.
    """

    __slots__ = ("defaults", "guards", "is_direct", "kind", "order", "replay", "used")

    def __init__(
        self,
        replay: Replay,
        guards: Values,
        order: tuple[int, ...] | None,
        defaults: Values,
        kind: Values,
    ) -> None:
        self.replay = replay
        self.guards = guards
        self.kind = kind
        # Whether the avals and classes of the arguments are all of the key.
        self.is_direct = order is None and len(kind) == len(defaults)
        self.order = order
        self.defaults = defaults
        self.used = 0


class Dispatcher:
    """Something called with arrays and numbers, which remembers what each kind of call runs.

    A call is told apart by the avals of its arrays and the classes of its numbers, by position and
    by name. One that it doesn't know, `_call_anew` answers.
    """

    __slots__ = (
        "__weakref__",
        "_activity",
        "_clock",
        "_foreign",
        "_hits",
        "_known",
        "_last",
        "_statics",
    )

    def __init__(self, statics: frozenset[int | str]) -> None:
        self._activity: Activity = activity
        self._known: dict[Values, Known] = {}
        # What the last call found, if that takes no more than looking at its arguments.
        self._last: Known | None = None
        # Places and names of static arguments.
        self._statics = statics
        # Classes of other libraries' arrays that calls came with.
        self._foreign: set[type] = set()
        self._hits = 0
        self._clock = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._activity.traces and current_trace() is not None:
            return self._call_traced(args, kwargs)
        known: Known | None = self._last
        if known is not None and not kwargs and self._is_like_last(args, known.kind):
            if changed(known.guards) is None:
                self._hits += 1
                self._clock += 1
                known.used = self._clock
                stream = current_stream() if self._activity.streams else None
                try:
                    return known.replay.run(args, args, stream)
                except IntegerRangeError:
                    return self._call_anew(args, kwargs, known.kind)
        return self._look_up(args, kwargs)

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
                    leaves = self._adopted(given, key)
                    break
        if kwargs:
            key.append(tuple(kwargs))
        if self._statics:
            self._add_statics(args, kwargs, key)
        kind = tuple(key)
        known: Known | None = self._known.get(kind)
        if known is not None and changed(known.guards) is None:
            self._hits += 1
            self._clock += 1
            known.used = self._clock
            if leaves is args and known.is_direct:
                self._last = known
            if known.order is not None:
                leaves = _ordered(leaves, known)
                given = _ordered(given, known)
            stream = current_stream() if self._activity.streams else None
            try:
                return known.replay.run(leaves, given, stream)
            except IntegerRangeError:
                pass  # an integer that Numba types as uint64: another signature
        return self._call_anew(args, kwargs, kind)

    def _adopted(self, given: Values, key: list[Any]) -> Values:
        """The arguments with other libraries' arrays as Arrays, and their key."""
        key.clear()
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
        return tuple(leaves)

    def _add_statics(self, args: Values, kwargs: dict[str, Any], key: list[Any]) -> None:
        """Add the values of static arguments to a key; one that nothing equals if they can't be."""
        for place, value in enumerate(args):
            if place in self._statics:
                key.append(value if type(value) in _EXACT else object())
        for name, value in kwargs.items():
            if name in self._statics:
                key.append(value if type(value) in _EXACT else object())

    def _remember(self, kind: Values, known: Known, arguments: Values) -> None:
        """Let calls of a kind go the short way."""
        met = len(self._foreign)
        for value in arguments:
            if not isinstance(value, Handle) and (
                hasattr(type(value), "__dlpack__") or hasattr(value, "__cuda_array_interface__")
            ):
                self._foreign.add(type(value))
        # The key of a call with a new class of array didn't see what it is an array of.
        if len(self._foreign) == met:
            self._known[kind] = known

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
