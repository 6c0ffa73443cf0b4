"""Arguments: bound to the signature, flattened, and described by a key."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphjit._adoption import adopt, host_aval
from graphjit._array import Array
from graphjit._aval import ArrayAval, Aval, ScalarAval
from graphjit._context import default_device
from graphjit._errors import ArgumentError, DeviceError, IntegerRangeError
from graphjit._location import called_at
from graphjit._pytrees import Static, flatten, leaf_names, structure_of
from graphjit._scalars import UInt64Integer
from graphjit._trace import SCALARS
from graphjit._tracers import Tracer
from graphjit.backends.base import Device
from graphjit.kernel import numba_types


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

    def leaf_names(self) -> list[str]:
        """How a user writes the leaves of the arguments: ``state['u'][0]``."""
        return leaf_names(self.tree, self.names)

    @property
    def fingerprint(self) -> int:
        """A hash by which to recognise the key later without keeping static values alive."""
        # An aval's own hash is good only while it is there.
        avals = (aval.fields if isinstance(aval, ArrayAval) else aval for aval in self.avals)
        return hash((self.tree, tuple(avals), self.statics, self.device))


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
        if len(defaults) != len(self._defaults) or not all(
            map(operator.is_, defaults, self._defaults)
        ):
            self._defaults, self._signature = defaults, inspect.signature(self._function)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}(): {error}{called_at()}") from None
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.names)

    def places(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: bool
    ) -> list[tuple[int, Any]]:
        """Where the dynamic leaves are among the leaves of the arguments as they were given.

        Parameters
        ----------
        args, kwargs
            A call's that `bind` accepts.
        flat : bool
            Whether containers were flattened; if not, each argument is one leaf.

        Returns
        -------
        list of (int, object)
            For each leaf its place among those of the positional and then the named arguments, or
            -1 for the default that follows.
        """
        given = (*args, *kwargs.values())
        first = [0, *itertools.accumulate(_size(value) if flat else 1 for value in given)]
        named = {name: len(args) + index for index, name in enumerate(kwargs)}
        found: list[tuple[int, Any]] = []
        for index, parameter in enumerate(self._signature.parameters.values()):
            where: Iterable[int] = ()
            default: Any = ()
            if parameter.kind is parameter.VAR_POSITIONAL:
                where = range(index, len(args))
            elif parameter.kind is parameter.VAR_KEYWORD:
                where = named.values()
            elif index < len(args) and parameter.kind is not parameter.KEYWORD_ONLY:
                where = (index,)
            elif parameter.name in named and parameter.kind is not parameter.POSITIONAL_ONLY:
                where = (named.pop(parameter.name),)
            else:
                default = parameter.default
            if parameter.name not in self.static:
                found += ((leaf, None) for at in where for leaf in range(first[at], first[at + 1]))
                found += ((-1, leaf) for leaf in flatten(default)[0])
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
        return leaf_names(self.tree, self.names)[index]


def _defaults(function: Any) -> list[Any]:
    """The objects that hold a callable's defaults, and those of what it wraps."""
    found: list[Any] = []
    while True:
        function = getattr(function, "__func__", function)
        if isinstance(function, functools.partial):
            found += [*function.keywords, *function.keywords.values()]
            function = function.func
        elif isinstance(function, types.FunctionType):
            keyword_only = function.__kwdefaults__ or {}
            found += [function.__defaults__, *keyword_only, *keyword_only.values()]
            if not hasattr(function, "__wrapped__"):
                return found
            function = function.__wrapped__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            call = inspect.getattr_static(type(function), "__call__", None)
            if not isinstance(call, types.FunctionType):
                return found
            function = call


def _size(value: Any) -> int:
    size: int = structure_of(value).num_leaves
    return size


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
        if numba_types.is_no_element(value.dtype):
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
    if isinstance(leaf, np.ndarray | np.void):
        return host_aval(leaf, device)
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
