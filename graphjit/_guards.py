"""Guards: what a trace took from outside its arguments, and whether it is still the same.

Each is compared by identity, so that rebinding a name, or redefining a kernel, is a miss. Compiled
where there is a C compiler (see `setup.py`): every call compares them all.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from graphjit._interpreter import function_attribute
from graphjit._mathematics import Place, original_of

MISSING = object()
_missing = MISSING
# Compared by value, so that `dt = 0.1` run again in a notebook cell is no change.
PLAIN = (int, float, complex, str, bytes, bool, type(None))


class Guard:
    """One outside name and what it was bound to.

    Parameters
    ----------
    holder : object
        Where the name lives: a namespace, a cell, or an object that is asked for an attribute.
    name : str
        The name.
    value : object
        What it was bound to when the function was traced.
    what : str
        What messages call it.
    """

    __slots__ = ("_space", "holder", "name", "value", "what")

    def __init__(self, holder: Any, name: str, value: Any, what: str) -> None:
        self.holder = holder
        self.name = name
        # Another thread's trace may have put the stand-in of a math function there.
        self.value = original_of(value)
        self.what = what
        # Most guards are of names in a dict: asked without a method call.
        self._space: dict[str, Any] | None = None
        if type(self) is Guard and type(holder) is dict:
            self._space = holder

    @property
    def is_container(self) -> bool:
        """Whether it guards the contents of a list or dict."""
        return False

    def current(self) -> Any:
        """What the name is bound to now."""
        return self.holder.get(self.name, MISSING)

    def holds(self) -> bool:
        """Whether that is what it was."""
        now = original_of(self.current())
        return now is self.value or (
            type(now) is type(self.value)
            and isinstance(now, PLAIN)
            and repr(now) == repr(self.value)
        )

    def places(self) -> list[Place]:
        """Where what it guards is bound, if one can bind something else there."""
        return [(self.holder, self.name)] if type(self.holder) is dict else []

    def __str__(self) -> str:
        now = original_of(self.current())
        if self.value is MISSING or now is MISSING:
            return f"{self.what} was {'defined' if self.value is MISSING else 'deleted'}"
        if isinstance(self.value, PLAIN) and isinstance(now, PLAIN):
            return f"{self.what} was rebound from {self.value!r} to {now!r}"
        return f"{self.what} was rebound"


class CellGuard(Guard):
    """A name that a function closes over."""

    __slots__ = ()

    def current(self) -> Any:
        """What the cell holds now."""
        try:
            return self.holder.cell_contents
        except ValueError:
            return MISSING

    def places(self) -> list[Place]:
        """The cell."""
        return [(self.holder, self.name)]


class AttributeGuard(Guard):
    """An attribute, asked for as code asks for it."""

    __slots__ = ()

    def current(self) -> Any:
        """What the attribute is now."""
        return getattr(self.holder, self.name, _missing)


class FunctionGuard(Guard):
    """The code or the defaults of a function."""

    __slots__ = ()

    def current(self) -> Any:
        """What they are now."""
        return function_attribute(self.holder, self.name)


class ArrayGuard(Guard):
    """A closed-over NumPy array, whose memory or layout can be changed in place."""

    __slots__ = ()

    def current(self) -> Any:
        """Its memory and layout now."""
        return _state_of(self.holder)

    def holds(self) -> bool:
        """Whether they are what they were."""
        return bool(self.current() == self.value)

    def __str__(self) -> str:
        return f"{self.name} was resized, reshaped, or made read-only or writeable"


class ItemsGuard(Guard):
    """A closed-over list or dict: the same items, by identity, in the same places."""

    __slots__ = ()

    @property
    def is_container(self) -> bool:
        """It does."""
        return True

    def current(self) -> Any:
        """Nothing that could be compared by identity."""
        return None

    def holds(self) -> bool:
        """Whether the items are the same."""
        items = items_of(self.holder)
        return len(items) == len(self.value) and (
            all(map(operator.is_, items, self.value))
            or all(map(operator.is_, map(original_of, items), self.value))
        )

    def places(self) -> list[Place]:
        """Each item of a list, each value of a dict."""
        if type(self.holder) is dict:
            return [(self.holder, key) for key in list(self.holder)]
        if type(self.holder) is list:
            return [(self.holder, index) for index in range(len(self.holder))]
        return []

    def __str__(self) -> str:
        return f"the contents of a closed-over {type(self.holder).__name__} were changed"


# Named, since Cython takes the bare type for one of C in the signature of a compiled function.
Guards = tuple[Guard, ...]


def items_of(container: Any) -> list[Any]:
    """The items of a list or tuple, the keys and values of a dict."""
    if isinstance(container, dict):
        return [*container, *container.values()]
    return list(container)


def _state_of(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return array.ctypes.data, array.shape, array.strides, array.dtype, array.flags.writeable


def array_guard(array: np.ndarray[Any, Any], name: str) -> Guard:
    """Guard the memory and layout of an array that a function closes over."""
    return ArrayGuard(array, name, _state_of(array), "array")


def changed(guards: Guards) -> Guard | None:
    """The first guard that doesn't hold any more, if there is one."""
    for item in guards:
        guard: Guard = item
        space = guard._space
        now = guard.current() if space is None else space.get(guard.name, _missing)
        if now is not guard.value and not guard.holds():
            return guard
    return None
