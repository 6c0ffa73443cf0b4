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
from graphjit._context import default_device
from graphjit._errors import ArgumentError, DeviceError
from graphjit._layout import Layout, layout_of
from graphjit._trace import SCALARS
from graphjit._tracers import Tracer
from graphjit.backends.base import Device

NAMESPACE = "graphjit"


@dataclass(frozen=True)
class ArrayAval:
    """What a graph needs to know of an array argument.

    Parameters
    ----------
    layout : Layout
        Shape, strides and dtype.
    readonly : bool
        Whether kernels may not write it.
    record : bool
        Whether it is a structured scalar.
    """

    layout: Layout
    readonly: bool = False
    record: bool = False

    def __str__(self) -> str:
        return str(self.layout)


@dataclass(frozen=True)
class ScalarAval:
    """What a graph needs to know of a number argument: its class."""

    type: type

    def __str__(self) -> str:
        return self.type.__name__


Aval = ArrayAval | ScalarAval


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

    def leaf_name(tree: Any, names: tuple[str, ...], index: int) -> str:
    """How a user writes a leaf of the arguments: ``state['u'][0]``."""
    parameter, *path = tree.paths()[index]
    return names[parameter] + "".join(f"[{entry!r}]" for entry in path)


def register_dataclass(value: Any) -> bool:
    """Make a dataclass instance's class a pytree, if it isn't one; whether that was done.

    Fields with ``metadata={"static": True}`` belong to the structure, not to the leaves.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return False
    cls = type(value)
    if not optree.tree_structure(value, namespace=NAMESPACE).is_leaf():
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
        for name, item in (*zip(children, values, strict=True), *zip(static, metadata, strict=True)):
            object.__setattr__(instance, name, item)
        return instance

    optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)
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


def _aval(leaf: Any) -> Aval:
    if isinstance(leaf, Array):
        return ArrayAval(leaf._layout, leaf._readonly)
    if isinstance(leaf, np.ndarray):
        return ArrayAval(layout_of(leaf), not leaf.flags.writeable)
    if isinstance(leaf, np.void):
        return ArrayAval(Layout((), (), leaf.dtype), record=True)
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
