"""The outside names that a function can resolve, each with its guard.

They are read off its bytecode: globals, closure cells, imports inside it, attributes of modules,
classes and plain objects that it names, and the same for the Python functions it calls.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any

from graphjit._guards import (
    MISSING,
    PLAIN,
    AttributeGuard,
    CellGuard,
    FunctionGuard,
    Guard,
    ItemsGuard,
    items_of,
)
from graphjit._mathematics import original_of

_LIBRARIES = frozenset(
    (
        "cuda",
        "cupy",
        "graphjit",
        "jax",
        "llvmlite",
        "numba",
        "numba_cuda",
        "numpy",
        "optree",
        "torch",
    )
)
# Containers with more items than that are not looked into.
_MAX_ITEMS = 256
# How methods are called that no name in the code calls.
_IMPLICIT = frozenset(
    name
    for name in (
        "call init post_init new enter exit getitem setitem contains iter next len add radd sub "
        "rsub mul rmul truediv rtruediv floordiv mod pow neg pos abs eq ne lt le gt ge bool float "
        "int index getattr"
    ).split()
    for name in (f"__{name}__",)
)


def guards_of(function: Any, others: Iterable[Any] = ()) -> tuple[Guard, ...]:
    """Guards for every outside name that a function can resolve.

    Parameters
    ----------
    function : callable
        The function that is traced.
    others : iterable
        Other objects that it is given: its static arguments.

    Returns
    -------
    tuple of Guard
    """
    seen: _Seen = set()
    found = list(_of_value(function, frozenset(), seen))
    plain = inspect.unwrap(getattr(function, "__func__", function))
    attributes = _attributes(plain) if isinstance(plain, types.FunctionType) else frozenset()
    for other in others:
        found += _of_value(other, attributes, seen)
    return tuple(found)


# Functions by id, and attributes by the id of their object and their name.
_Seen = set[int | tuple[int, str]]


def _of_function(function: types.FunctionType, seen: _Seen) -> Iterator[Guard]:
    if id(function) in seen:
        return
    seen.add(id(function))
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        # Where there are no defaults all arguments are given: ones that come later change nothing.
        if (held := getattr(function, name)) is not None:
            what = f"attribute {name!r} of {function.__name__}"
            yield FunctionGuard(function, name, held, what)
    if function.__kwdefaults__:
        yield _of_items(function.__kwdefaults__)
    attributes = _attributes(function)
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for name in sorted(_names_in(function.__code__, ("LOAD_GLOBAL", "LOAD_NAME"))):
        # A name that isn't there now is a builtin, which a later global would hide.
        value = function.__globals__.get(name, MISSING)
        values.append(value)
        yield Guard(function.__globals__, name, value, f"global {name!r}")
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        guard = CellGuard(cell, name, None, "")
        value = guard.current()
        values.append(value)
        yield CellGuard(cell, name, value, f"closed-over name {name!r}")
    for name in sorted(_names_in(function.__code__, ("IMPORT_NAME",))):
        if name in sys.modules:
            values.append(sys.modules[name])
    for value in values:
        yield from _of_value(value, attributes, seen)


def _of_value(value: Any, attributes: frozenset[str], seen: _Seen) -> Iterator[Guard]:
    """What lies behind a name: a helper's own names, a module's or an object's attributes."""
    if isinstance(value, types.FunctionType):
        if not _is_library(value.__module__):
            yield from _of_function(value, seen)
            if value.__dict__:
                yield from _of_object(value, attributes, seen)
    elif isinstance(value, classmethod | staticmethod | types.MethodType):
        yield from _of_value(value.__func__, attributes, seen)
        if isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
            yield from _of_object(value.__self__, _attributes(value.__func__), seen)
    elif isinstance(value, property):
        for accessor in (value.fget, value.fset):
            yield from _of_value(accessor, attributes, seen)
    elif isinstance(value, functools.partial):
        yield _of_items(value.keywords)
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _of_value(part, attributes, seen)
    elif isinstance(value, types.ModuleType):
        if not _is_library(value.__name__):
            yield from _of_object(value, attributes, seen)
    elif isinstance(inspect.getattr_static(value, "__wrapped__", None), types.FunctionType):
        # A graphed or decorated helper. A kernel froze its own names when it was compiled, as it
        # does in eager code.
        if _top(type(value).__module__) != "numba":
            yield from _of_value(value.__wrapped__, attributes, seen)
    elif isinstance(value, dict | list | tuple):
        yield from _of_container(value, attributes, seen)
        if type(value) not in (dict, list, tuple):
            yield from _of_object(value, attributes, seen)
    elif not isinstance(value, PLAIN):
        yield from _of_object(value, attributes, seen)


def _of_container(value: Any, attributes: frozenset[str], seen: _Seen) -> Iterator[Guard]:
    if id(value) in seen or len(value) > _MAX_ITEMS:
        return
    seen.add(id(value))
    if not isinstance(value, tuple):
        yield _of_items(value)
    for item in map(original_of, items_of(value)):
        yield from _of_value(item, attributes, seen)


def _of_items(value: Any) -> Guard:
    return ItemsGuard(value, "", [*map(original_of, items_of(value))], "")


def _of_object(value: Any, attributes: frozenset[str], seen: _Seen) -> Iterator[Guard]:
    """The attributes among these names that a plain object, a class or a module holds."""
    is_class = isinstance(value, type)
    if _top((value if is_class else type(value)).__module__) in _LIBRARIES:
        return
    has_name = is_class or isinstance(value, types.ModuleType)
    owner = value.__name__ if has_name else type(value).__name__
    classes = value.__mro__ if is_class else type(value).__mro__
    holders = [] if is_class else [value]
    holders += [cls for cls in classes if cls.__module__ != "builtins"]
    spaces = [_namespace(holder) for holder in holders]
    wanted = attributes if isinstance(value, types.ModuleType) else attributes | _IMPLICIT
    for name in sorted(wanted):
        if (id(value), name) in seen:
            continue
        seen.add((id(value), name))
        overridden = False
        for index, space in enumerate(spaces):
            if name not in space:
                continue
            what = f"attribute {name!r} of {owner}"
            # Those before it don't have the name now, and would hide it.
            for earlier in () if overridden else spaces[:index]:
                yield Guard(earlier, name, MISSING, what)
            item = space[name]
            yield Guard(space, name, item, what)
            if isinstance(item, types.MemberDescriptorType) and not is_class:
                item = getattr(value, name, MISSING)
                yield AttributeGuard(value, name, item, what)
            yield from _of_value(item, attributes, seen)
            method = getattr(item, "__func__", getattr(item, "fget", item))
            if isinstance(method, types.FunctionType) and not isinstance(value, types.ModuleType):
                # A method or property: what it reads from the same object, or its class.
                yield from _of_object(value, _attributes(method), seen)
                # What calls super() goes on to the next class that has the name.
                overridden = "__class__" in method.__code__.co_freevars
            if not overridden:
                break


def _namespace(holder: Any) -> Any:
    """The names of one object or class itself, without those of its bases."""
    if isinstance(holder, type):
        return holder.__dict__
    try:
        space = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return {}
    return space if isinstance(space, dict) else {}


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


@functools.cache
def _is_library(module: str | None) -> bool:
    """Whether a module's names are nobody's to rebind."""
    top = _top(module)
    if top in _LIBRARIES:
        return True
    if top not in sys.stdlib_module_names:
        return False
    # A user's module can have the name of one of Python's.
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is None or file.startswith(sysconfig.get_path("stdlib"))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _attributes(function: types.FunctionType) -> frozenset[str]:
    """Names of attributes a function can ask for, `getattr` with a constant name included."""
    return _attributes_in(function.__code__)


# Kept by code: reading it takes about half as long as all else that a trace of one launch does.
@functools.lru_cache(1024)
def _attributes_in(code: types.CodeType) -> frozenset[str]:
    names = _names_in(code, ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"))
    constants = (constant for part in _codes(code) for constant in part.co_consts)
    return names | {c for c in constants if isinstance(c, str) and c.isidentifier()}


@functools.lru_cache(1024)
def _names_in(code: types.CodeType, opcodes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        instruction.argval
        for part in _codes(code)
        for instruction in dis.get_instructions(part)
        if instruction.opname in opcodes
    )
