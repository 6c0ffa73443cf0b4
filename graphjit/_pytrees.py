"""Arguments and results as trees of arrays and numbers, and static values beside them."""

from __future__ import annotations

import atexit
import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optree

from graphjit._array import Array
from graphjit._errors import ArgumentError
from graphjit._location import called_at
from graphjit._locks import Gate

NAMESPACE = "graphjit"
# Traced functions see dicts in their own order, so the order is part of the structure. Entered for
# good: it is a setting of the namespace, which is graphjit's alone.
_IN_ORDER = optree.dict_insertion_ordered(True, namespace=NAMESPACE)
_IN_ORDER.__enter__()

# optree lets other threads run while it holds a lock of C++, in code that mustn't be unwound:
# a fork then leaves a child the lock for ever, and until Python 3.13 threads end by unwinding.
gate = Gate()
atexit.register(gate.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=gate.close, after_in_parent=gate.open)


def _behind_gate(function: Callable[..., Any]) -> Callable[[Any], Any]:
    def guarded(tree: Any) -> Any:
        gate.enter()
        try:
            return function(tree, namespace=NAMESPACE)
        finally:
            gate.leave()

    return guarded


_flatten = _behind_gate(optree.tree_flatten)
structure_of = _behind_gate(optree.tree_structure)
is_leaf = _behind_gate(optree.tree_is_leaf)


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
    leaves, structure = _flatten(tree)
    while any([register_dataclass(leaf) for leaf in leaves]):
        leaves, structure = _flatten(tree)
    return leaves, structure


def leaf_names(tree: Any, names: tuple[str, ...]) -> list[str]:
    """How a user writes the leaves of the arguments: ``state['u'][0]``."""
    return [path[1:].codify(names[path[0].entry]) for path in tree.accessors()]


def is_pytree(value: Any) -> bool:
    """Whether a value has parts, or is an array."""
    register_dataclass(value)
    structure = structure_of(value)
    return not structure.is_leaf() or isinstance(value, Array | np.ndarray)


def register_dataclass(value: Any) -> bool:
    """Make a dataclass instance's class a pytree, if it isn't one; whether that was done.

    Fields with ``metadata={"static": True}`` belong to the structure, not to the leaves.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return False
    cls: Any = type(value)
    instance: Any = value
    if not is_leaf(instance):
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
    register(cls, flatten, unflatten, path_entry_type=optree.GetAttrEntry, namespace=NAMESPACE)
    return True
