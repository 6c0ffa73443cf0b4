"""What a trace took from outside its arguments, and whether it is still the same.

The names a function can resolve are read off its bytecode: globals, closure cells, attributes of
modules and of plain objects that it names, and the same for the Python functions it calls. Each is
guarded by identity, so that rebinding one, or redefining a kernel, is a miss.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LIBRARIES = (
    "numpy",
    "numba",
    "numba_cuda",
    "graphjit",
    "optree",
    "cuda",
    "math",
    "cupy",
    "torch",
    "jax",
)
_MISSING = object()


@dataclass(frozen=True, eq=False)
class Guard:
    """One outside name and what it was bound to.

    Parameters
    ----------
    holder : dict or cell
        Where the name lives.
    name : str
        The name.
    value : object
        What it was bound to when the function was traced.
    owner : str
        How messages call the holder.
    """

    holder: Any
    name: str
    value: Any
    owner: str

    def current(self) -> Any:
        """What the name is bound to now."""
        if type(self.holder) is types.CellType:
            try:
                return self.holder.cell_contents
            except ValueError:
                return _MISSING
        return self.holder.get(self.name, _MISSING)

    def __str__(self) -> str:
        return f"{self.owner} {self.name!r} was rebound"


def changed(guards: tuple[Guard, ...]) -> Guard | None:
    """The first guard whose name is bound to something else now, if any."""
    for guard in guards:
        if guard.current() is not guard.value:
            return guard
    return None


def guards_of(function: Any, instance: Any = None) -> tuple[Guard, ...]:
    """Guards for every outside name that a Python function can resolve.

    Parameters
    ----------
    function : function
        The function that is traced.
    instance : object, optional
        What its first parameter is bound to, if it is a method.

    Returns
    -------
    tuple of Guard
    """
    seen: _Seen = set()
    found = list(_of_function(function, seen))
    if instance is not None:
        found += _of_object(instance, _attributes(function), seen)
    return tuple(found)


# Functions by id, and attributes by the id of their object and their name.
_Seen = set[int | tuple[int, str]]


def _of_function(function: types.FunctionType, seen: _Seen) -> Iterator[Guard]:
    if id(function) in seen:
        return
    seen.add(id(function))
    values = list(function.__defaults__ or ())
    for name in _globals(function):
        # A name that isn't there now is a builtin, which a later global would hide.
        value = function.__globals__.get(name, _MISSING)
        values.append(value)
        yield Guard(function.__globals__, name, value, "global")
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        value = Guard(cell, name, None, "").current()
        values.append(value)
        yield Guard(cell, name, value, "closed-over name")
    attributes = _attributes(function)
    for value in values:
        yield from _of_value(value, attributes, seen)


def _of_value(value: Any, attributes: set[str], seen: _Seen) -> Iterator[Guard]:
    """What lies behind a name: a helper's own names, a module's or an object's attributes."""
    if isinstance(value, types.FunctionType):
        if not _is_library(value.__module__):
            yield from _of_function(value, seen)
    elif isinstance(value, types.MethodType):
        yield from _of_value(value.__func__, attributes, seen)
        if isinstance(value.__func__, types.FunctionType):
            yield from _of_object(value.__self__, _attributes(value.__func__), seen)
    elif isinstance(value, types.ModuleType):
        if not _is_library(value.__name__):
            yield from _of_object(value, attributes, seen)
    elif isinstance(getattr(value, "__wrapped__", None), types.FunctionType):
        # A graphed or decorated helper. A kernel froze its own names when it was compiled, as it
        # does in eager code.
        if _top(type(value).__module__) != "numba":
            yield from _of_value(value.__wrapped__, attributes, seen)
    else:
        yield from _of_object(value, attributes, seen)


def _of_object(value: Any, attributes: set[str], seen: _Seen) -> Iterator[Guard]:
    """The attributes among these names that a plain object, its class or a module holds."""
    if _top(type(value).__module__) in _LIBRARIES:
        return
    owner = f"attribute of {getattr(value, '__name__', type(value).__name__)}"
    holders = [
        holder
        for holder in (value, *type(value).__mro__)
        if hasattr(holder, "__dict__") and getattr(holder, "__module__", "") != "builtins"
    ]
    for name in sorted(attributes):
        if (id(value), name) in seen:
            continue
        seen.add((id(value), name))
        for index, holder in enumerate(holders):
            if name not in holder.__dict__:
                continue
            # Those before it don't have the name now, and would hide it.
            for earlier in holders[:index]:
                yield Guard(earlier.__dict__, name, _MISSING, owner)
            item = holder.__dict__[name]
            yield Guard(holder.__dict__, name, item, owner)
            yield from _of_value(item, attributes, seen)
            if isinstance(item, types.FunctionType) and holder is not value:
                # A method: what it reads from the same object.
                yield from _of_object(value, _attributes(item), seen)
            break


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _is_library(module: str | None) -> bool:
    """Whether a module's names are nobody's to rebind."""
    return _top(module) in _LIBRARIES or _top(module) in sys.stdlib_module_names


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _globals(function: types.FunctionType) -> list[str]:
    return sorted(_names(function, ("LOAD_GLOBAL", "LOAD_NAME")))


def _attributes(function: types.FunctionType) -> set[str]:
    return _names(function, ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"))


def _names(function: types.FunctionType, opcodes: tuple[str, ...]) -> set[str]:
    return {
        instruction.argval
        for code in _codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in opcodes
    }
