"""Arguments: bound to the signature, flattened, and described by a key."""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from graphjit._adoption import adopt
from graphjit._array import Array
from graphjit._aval import Aval, ScalarAval, array_aval
from graphjit._context import default_device
from graphjit._errors import ArgumentError, DeviceError, IntegerRangeError
from graphjit._layout import Layout, layout_of
from graphjit._location import called_at
from graphjit._scalars import UInt64Integer
from graphjit._trace import SCALARS
from graphjit._tracers import Tracer
from graphjit.backends.base import Device
from graphjit.kernel import frontend

NAMESPACE = "graphjit"
# Traced functions see dicts in their own order, so the order is part of the structure. Entered for
# good: it is a setting of the namespace, which is graphjit's alone.
_IN_ORDER = optree.dict_insertion_ordered(True, namespace=NAMESPACE)
_IN_ORDER.__enter__()


@dataclass(frozen=True)
class Key:
    """What selects an executable.

    Parameters
    ----------
    tree : optree.PyTreeSpec
        Structure of the dynamic arguments.
    avals : tuple of ArrayAval or ScalarAval
        One for each leaf.
    statics : tuple
        Values of the static arguments.
    device : Device
        Where the graph runs.
    names : tuple of str
        Names of the dynamic parameters.
    """

    tree: Any
    avals: tuple[Aval, ...]
    statics: tuple[Any, ...]
    device: Device
    names: tuple[str, ...]

    def leaf_name(self, index: int) -> str:
        """How a user writes a leaf of the arguments: ``state['u'][0]``."""
        return leaf_name(self.tree, self.names, index)


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of one call.

    Parameters
    ----------
    leaves : tuple
        Dynamic leaves: Arrays, NumPy arrays and numbers.
    key : Key
        What selects the executable.
    given : tuple
        The leaves as the caller gave them, before arrays of other libraries were adopted.
    """

    leaves: tuple[Any, ...]
    key: Key
    given: tuple[Any, ...]


class Signature:
    """A function's parameters, and which of them are static.

    Parameters
    ----------
    function : callable
        The user's function.
    static_argnums : iterable of int
        Positions of static parameters.
    static_argnames : iterable of str
        Names of static parameters.

    Raises
    ------
    ValueError
        If a static parameter isn't there.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: Iterable[int] = (),
        static_argnames: Iterable[str] = (),
    ) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._defaults = _defaults(function)
        self._signature = inspect.signature(function)
        self.names = tuple(self._signature.parameters)
        static = set(static_argnames)
        for number in static_argnums:
            if not -len(self.names) <= number < len(self.names):
                raise ValueError(f"{self.name} has no parameter {number} to be static")
            static.add(self.names[number])
        for name in static:
            if name not in self.names:
                raise ValueError(f"{self.name} has no parameter {name!r} to be static")
        self.static = frozenset(static)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """One value for each parameter, defaults filled in."""
        defaults = _defaults(self._function)
        if not all(map(operator.is_, defaults, self._defaults)):
            self._defaults, self._signature = defaults, inspect.signature(self._function)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}(): {error}{called_at()}") from None
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.names)

    def places(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[str, int, Any]] | None:
        """Where each parameter's value is among the arguments, of a call that `bind` accepts.

        Returns
        -------
        list of (str, int, object), or None
            Name, place among the positional and then the named arguments, or -1 for the default
            that follows. None for functions that take any number of arguments.
        """
        found: list[tuple[str, int, Any]] = []
        named = {name: len(args) + index for index, name in enumerate(kwargs)}
        for index, parameter in enumerate(self._signature.parameters.values()):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                return None
            place = index if index < len(args) else named.get(parameter.name, -1)
            found.append((parameter.name, place, parameter.default))
        return found

    @staticmethod
    def is_plain(value: Any, leaf: Any) -> bool:
        """Whether an argument's aval or class says all of its leaf."""
        if isinstance(leaf, Array) and not isinstance(value, np.ndarray):
            return True  # or what was adopted
        if isinstance(value, np.ndarray):
            return default_device().backend == "cpu"
        return leaf is value and not isinstance(leaf, np.void | UInt64Integer)

    def call(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """Call a function with one value for each parameter."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, value in zip(self._signature.parameters.values(), values, strict=True):
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += value
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return function(*args, **kwargs)

    def arguments(self, values: tuple[Any, ...]) -> Arguments:
        """Flatten and describe a call's values.

        Raises
        ------
        ArgumentError
            If a leaf is neither an array nor a number, or a static value has no hash.
        DeviceError
            If arrays of different devices are among the leaves.
        """
        statics = tuple(
            Static(name, value, self.name)
            for name, value in zip(self.names, values, strict=True)
            if name in self.static
        )
        names = tuple(name for name in self.names if name not in self.static)
        dynamic = tuple(
            value for name, value in zip(self.names, values, strict=True) if name not in self.static
        )
        leaves, tree = flatten(dynamic)
        where = _Where(self.name, tree, names)
        arrays = [_leaf(leaf, where, index) for index, leaf in enumerate(leaves)]
        device = _device(arrays, where)
        key = Key(tree, tuple(_aval(leaf, device) for leaf in arrays), statics, device, names)
        return Arguments(tuple(arrays), key, tuple(leaves))


@dataclass(frozen=True)
class _Where:
    """Names a leaf in messages."""

    function: str
    tree: Any
    names: tuple[str, ...]

    def name(self, index: int) -> str:
        return leaf_name(self.tree, self.names, index)


class Static:
    """A static value, which compares exactly: 1, 1.0 and True differ, and so do 0.0 and -0.0."""

    __slots__ = ("_exact", "_hash", "name", "value")

    def __init__(self, name: str, value: Any, function: str) -> None:
        self.name = name
        self.value = value
        self._exact = (name, _exact(value))
        try:
            self._hash = hash(self._exact)
        except TypeError:
            raise ArgumentError(
                f"{function}(): the static argument {name!r} is a {type(value).__name__}, which "
                f"has no hash; pass a tuple, a string or another immutable value{called_at()}"
            ) from None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self._exact == other._exact

    def __repr__(self) -> str:
        return f"{self.name}={self.value!r}"


def _exact(value: Any) -> Any:
    """What stands for a value in a comparison that tells classes and bits apart."""
    cls = type(value)
    if isinstance(value, tuple | frozenset):
        parts = map(_exact, value)
        return cls, frozenset(parts) if isinstance(value, frozenset) else tuple(parts)
    if isinstance(value, float | complex | np.inexact):
        return cls, repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return cls, tuple(_exact(getattr(value, field.name)) for field in fields)
    return cls, value


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure of a pytree, dataclasses included, dicts in their own order."""
    leaves: list[Any]
    leaves, structure = optree.tree_flatten(tree, namespace=NAMESPACE)
    while any([register_dataclass(leaf) for leaf in leaves]):
        leaves, structure = optree.tree_flatten(tree, namespace=NAMESPACE)
    return leaves, structure


def leaf_name(tree: Any, names: tuple[str, ...], index: int) -> str:
    """How a user writes a leaf of the arguments: ``state['u'][0]``."""
    parameter, *path = tree.paths()[index]
    return str(names[parameter]) + "".join(f"[{entry!r}]" for entry in path)


def is_pytree(value: Any) -> bool:
    """Whether a value has parts, or is an array."""
    register_dataclass(value)
    structure = optree.tree_structure(value, namespace=NAMESPACE)
    return not structure.is_leaf() or isinstance(value, Array | np.ndarray)


def register_dataclass(value: Any) -> bool:
    """Make a dataclass instance's class a pytree, if it isn't one; whether that was done.

    Fields with ``metadata={"static": True}`` belong to the structure, not to the leaves.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return False
    cls: Any = type(value)
    instance: Any = value
    if not optree.tree_structure(instance, namespace=NAMESPACE).is_leaf():
        return False
    fields = dataclasses.fields(cls)
    static = [f.name for f in fields if f.metadata.get("static")]
    children = [f.name for f in fields if not f.metadata.get("static")]

    def flatten(instance: Any) -> tuple[Any, ...]:
        return (
            [getattr(instance, name) for name in children],
            tuple(Static(name, getattr(instance, name), cls.__name__) for name in static),
            children,
        )

    def unflatten(metadata: tuple[Any, ...], values: Iterable[Any]) -> Any:
        instance = object.__new__(cls)
        for name, item in zip(children, values, strict=True):
            object.__setattr__(instance, name, item)
        for field in metadata:
            object.__setattr__(instance, field.name, field.value)
        return instance

    register: Any = optree.register_pytree_node
    register(cls, flatten, unflatten, namespace=NAMESPACE)
    return True


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


def _defaults(function: Any) -> tuple[Any, Any]:
    """The objects that hold a function's defaults."""
    function = getattr(function, "__func__", function)
    return getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)


def _leaf(value: Any, where: _Where, index: int) -> Any:
    if isinstance(value, int) and type(value) not in (int, bool):
        value = int(value)  # an IntEnum and the like is the number it stands for
    elif isinstance(value, float) and type(value) not in (float, np.float64):
        value = float(value)
    if type(value) is int and not -(2**63) <= value < 2**63:
        if not 0 <= value < 2**64:
            raise IntegerRangeError(
                f"{where.function}(): the integer {where.name(index)}={value} doesn't fit in 64 "
                f"bits{called_at()}"
            )
        return UInt64Integer(value)
    if isinstance(value, (Array, *SCALARS, np.void)):
        return value
    if isinstance(value, np.ndarray):
        if frontend.is_no_element(value.dtype):
            raise ArgumentError(
                f"{where.function}(): argument {where.name(index)} has dtype {value.dtype}, "
                f"which kernels don't take{called_at()}"
            )
        return value
    if isinstance(value, Tracer):
        raise value._elsewhere()
    adopted = adopt(value)
    if adopted is not None:
        return adopted
    if hasattr(type(value), "__dlpack__"):
        return np.from_dlpack(value)
    raise ArgumentError(
        f"{where.function}(): argument {where.name(index)} is a {type(value).__name__}, neither an "
        "array nor a number; convert it with graphjit.asarray, or make it static "
        f"(static_argnames){called_at()}"
    )


def _aval(leaf: Any, device: Device) -> Aval:
    if isinstance(leaf, Array):
        return leaf._aval
    if isinstance(leaf, np.ndarray):
        return array_aval(layout_of(leaf), device, not leaf.flags.writeable)
    if isinstance(leaf, np.void):
        return array_aval(Layout((), (), leaf.dtype), device, record=True)
    return ScalarAval(type(leaf))


def _device(leaves: list[Any], where: _Where) -> Device:
    found: Device | None = None
    first = 0
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Array):
            if found is None:
                found, first = leaf._device, index
            elif leaf._device != found:
                raise DeviceError(
                    f"{where.function}(): argument {where.name(first)} is on {found} and "
                    f"{where.name(index)} on {leaf._device}; move one of them" + called_at()
                )
    return found or default_device()
