"""Arguments: bound to the signature, flattened, and described by a key."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from graphjit._array import Array, adopt
from graphjit._aval import Aval, ScalarAval, array_aval
from graphjit._context import default_device
from graphjit._errors import ArgumentError, DeviceError
from graphjit._layout import Layout, layout_of
from graphjit._trace import SCALARS
from graphjit._tracers import Tracer
from graphjit.backends.base import Device

NAMESPACE = "graphjit"


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
    method : bool
        Whether the first parameter is the instance a method is bound to.

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
        method: bool = False,
    ) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
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
        self.method = method

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """One value for each parameter, defaults filled in."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}(): {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.names)

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
        static = [self._is_static(index, value) for index, value in enumerate(values)]
        statics = tuple(
            Static(name, value, self.name)
            for name, value, fixed in zip(self.names, values, static, strict=True)
            if fixed
        )
        names = tuple(n for n, fixed in zip(self.names, static, strict=True) if not fixed)
        dynamic: Any = tuple(v for v, fixed in zip(values, static, strict=True) if not fixed)
        leaves: list[Any]
        leaves, tree = optree.tree_flatten(dynamic, namespace=NAMESPACE)
        if any([register_dataclass(leaf) for leaf in leaves]):
            leaves, tree = optree.tree_flatten(dynamic, namespace=NAMESPACE)
        where = _Where(self.name, tree, names)
        arrays = [_leaf(leaf, where, index) for index, leaf in enumerate(leaves)]
        device = _device(arrays, where)
        key = Key(tree, tuple(_aval(leaf, device) for leaf in arrays), statics, device, names)
        return Arguments(tuple(arrays), key, tuple(leaves))

    def _is_static(self, index: int, value: Any) -> bool:
        return self.names[index] in self.static or (
            index == 0 and self.method and self._is_static_self(value)
        )

    def _is_static_self(self, value: Any) -> bool:
        """An instance that is no pytree is static, by identity."""
        register_dataclass(value)
        return optree.tree_structure(value, namespace=NAMESPACE).is_leaf() and not isinstance(
            value, (Array, np.ndarray)
        )


@dataclass(frozen=True)
class _Where:
    """Names a leaf in messages."""

    function: str
    tree: Any
    names: tuple[str, ...]

    def name(self, index: int) -> str:
        return leaf_name(self.tree, self.names, index)


class Static:
    """A static value: compares by type and value, so that 1, 1.0 and True differ."""

    __slots__ = ("_hash", "name", "value")

    def __init__(self, name: str, value: Any, function: str) -> None:
        self.name = name
        self.value = value
        try:
            self._hash = hash((name, type(value), value))
        except TypeError:
            raise ArgumentError(
                f"{function}(): the static argument {name!r} is a {type(value).__name__}, which "
                "has no hash; pass a tuple, a string or another immutable value"
            ) from None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Static)
            and self.name == other.name
            and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )

    def __repr__(self) -> str:
        return f"{self.name}={self.value!r}"


def leaf_name(tree: Any, names: tuple[str, ...], index: int) -> str:
    """How a user writes a leaf of the arguments: ``state['u'][0]``."""
    parameter, *path = tree.paths()[index]
    return str(names[parameter]) + "".join(f"[{entry!r}]" for entry in path)


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
            tuple(getattr(instance, name) for name in static),
            children,
        )

    def unflatten(metadata: tuple[Any, ...], values: Iterable[Any]) -> Any:
        instance = object.__new__(cls)
        for name, item in (
            *zip(children, values, strict=True),
            *zip(static, metadata, strict=True),
        ):
            object.__setattr__(instance, name, item)
        return instance

    register: Any = optree.register_pytree_node
    register(cls, flatten, unflatten, namespace=NAMESPACE)
    return True


def _leaf(value: Any, where: _Where, index: int) -> Any:
    if isinstance(value, (Array, *SCALARS, np.void)):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or value.dtype.kind in "USO":
            raise ArgumentError(
                f"{where.function}(): argument {where.name(index)} has dtype {value.dtype}, "
                "which kernels don't take"
            )
        return value
    if isinstance(value, Tracer):
        value._live()
        return value
    adopted = adopt(value)
    if adopted is not None:
        return adopted
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise ArgumentError(
        f"{where.function}(): argument {where.name(index)} is a {type(value).__name__}, neither an "
        "array nor a number; convert it with graphjit.asarray, or make it static (static_argnames)"
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
                    f"{where.name(index)} on {leaf._device}; move one of them"
                )
    return found or default_device()
