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

_LIBRARIES = ("numpy", "numba", "numba_cuda", "graphjit", "optree", "cuda", "math", "cupy", "torch", "jax")
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
    seen: set[int] = set()
    found = list(_of_function(function, seen))
    if instance is not None:
        found += _of_object(instance, _attributes(function.__code__), "attribute", seen)
    return tuple(found)


def _of_function(function: types.FunctionType, seen: set[int]) -> Iterator[Guard]:
    if id(function) in seen:
        return
    seen.add(id(function))
    attributes = set()
    values = []
    for code in _codes(function.__code__):
        attributes |= _attributes(code)
        for name in _globals(code):
            value = function.__globals__.get(name, _MISSING)
            if value is not _MISSING or not hasattr(__builtins__, name):
                values.append(value)
                yield Guard(function.__globals__, name, value, "global")
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        guard = Guard(cell, name, None, "closed-over name")
        value = guard.current()
        values.append(value)
        yield Guard(cell, name, value, "closed-over name")
    for value in (*values, *(function.__defaults__ or ())):
        yield from _of_value(value, attributes, seen)


def _of_value(value: Any, attributes: set[str], seen: set[int]) -> Iterator[Guard]:
    """What lies behind a name: a helper's own names, a module's or an object's attributes."""
    if isinstance(value, types.FunctionType):
        if not _is_library(value.__module__):
            yield from _of_function(value, seen)
    elif isinstance(value, types.MethodType):
        yield from _of_value(value.__func__, attributes, seen)
        yield from _of_object(value.__self__, attributes, "attribute", seen)
    elif isinstance(value, types.ModuleType):
        if not _is_library(value.__name__):
            yield from _of_object(value, attributes, f"attribute of {value.__name__}", seen)
    elif hasattr(value, "__wrapped__") and isinstance(value.__wrapped__, types.FunctionType):
        # A decorated helper; a kernel or graphed function freezes or guards its own names.
        if type(value).__module__.partition(".")[0] not in _LIBRARIES:
            yield from _of_function(value.__wrapped__, seen)
        elif type(value).__module__.startswith("graphjit"):
            yield from _of_function(value.__wrapped__, seen)
    else:
        yield from _of_object(value, attributes, f"attribute of a {type(value).__name__}", seen)


def _of_object(value: Any, attributes: set[str], owner: str, seen: set[int]) -> Iterator[Guard]:
    namespace = getattr(value, "__dict__", None)
    if not isinstance(namespace, dict) or id(value) in seen or _is_library(type(value).__module__):
        if not isinstance(value, types.ModuleType):
            return
    seen.add(id(value))
    assert isinstance(namespace, dict)
    for name in sorted(attributes & namespace.keys()):
        yield Guard(namespace, name, namespace[name], owner)
        yield from _of_value(namespace[name], attributes, seen)


def _is_library(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    return top in _LIBRARIES or top in sys.stdlib_module_names and top != "__main__"


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _globals(code: types.CodeType) -> list[str]:
    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return sorted(names)


def _attributes(code: types.CodeType) -> set[str]:
    return {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
    }
