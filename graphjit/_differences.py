"""What makes the keys of two calls differ, in the user's terms."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

import optree

from graphjit._aval import ArrayAval, Aval, ScalarAval, array_aval
from graphjit._scalars import UInt64Integer
from graphjit._signature import Key


def differences(was: Key, now: Key) -> list[str]:
    """Sentences that say what makes two keys of one function differ.

    Parameters
    ----------
    was, now : Key
        The call's before, and this one's.

    Returns
    -------
    list of str
    """
    found = []
    if was.device != now.device:
        found.append(f"the device was {was.device} and is {now.device}")
    for before, after in zip(was.statics, now.statics, strict=True):
        if before != after:
            found.append(f"static argument {before.name} {_values(before.value, after.value)}")
    avals, new_avals = list(was.avals), list(now.avals)
    parts = zip(now.names, was.tree.children(), now.tree.children(), strict=True)
    for name, tree, new_tree in parts:
        mine = [avals.pop(0) for _ in range(tree.num_leaves)]
        others = [new_avals.pop(0) for _ in range(new_tree.num_leaves)]
        found += (f"argument {text}" for text in _of_trees(name, tree, new_tree, mine, others))
    return found


def _of_trees(
    name: str, was: Any, now: Any, avals: Sequence[Aval], new_avals: Sequence[Aval]
) -> Iterator[str]:
    """Differences of one argument, or of a part of it."""
    if was == now:
        names = [path.codify(name) for path in was.accessors()]
        for leaf, before, after in zip(names, avals, new_avals, strict=True):
            if not _are_same(before, after):
                yield f"{leaf} was {_text(before)} and is {_text(after)}"
    elif was.is_leaf() or now.is_leaf() or was.type is not now.type:
        yield f"{name} was {_what(was, avals)} and is {_what(now, new_avals)}"
    elif was.entries() != now.entries():
        if issubclass(was.type, dict):
            yield _keys(name, was.entries(), now.entries())
        else:
            yield f"{name} was {_what(was, avals)} and is {_what(now, new_avals)}"
    elif was.one_level() != now.one_level():
        yield from _of_metadata(name, was, now)
    else:
        start = new_start = 0
        for path, part, new_part in zip(
            was.one_level().accessors(), was.children(), now.children(), strict=True
        ):
            end, new_end = start + part.num_leaves, new_start + new_part.num_leaves
            mine, others = avals[start:end], new_avals[new_start:new_end]
            yield from _of_trees(path.codify(name), part, new_part, mine, others)
            start, new_start = end, new_end


def _of_metadata(name: str, was: Any, now: Any) -> Iterator[str]:
    """Differences of two nodes that aren't in their parts."""
    if not dataclasses.is_dataclass(was.type):
        yield f"{name} was {was} and is {now}"
        return
    first, second = (optree.tree_unflatten(tree, [None] * tree.num_leaves) for tree in (was, now))
    for field in dataclasses.fields(was.type):
        if field.metadata.get("static"):
            before, after = getattr(first, field.name), getattr(second, field.name)
            if type(before) is not type(after) or before != after:
                yield f"{name}.{field.name} {_values(before, after)}"


def _values(was: Any, now: Any) -> str:
    before, after = reprlib.repr(was), reprlib.repr(now)
    if before == after:
        return f"was {before} and is another one, which isn't equal to it"
    return f"was {before} and is {after}"


def _keys(name: str, was: Sequence[Any], now: Sequence[Any]) -> str:
    before, after = (", ".join(map(repr, keys)) for keys in (was, now))
    if set(was) == set(now):
        return f"{name} had its keys in the order {before} and has them in the order {after}"
    before, after = (f"the keys {keys}" if keys else "no keys" for keys in (before, after))
    return f"{name} had {before} and has {after}"


def _what(tree: Any, avals: Sequence[Aval]) -> str:
    """What a part of the arguments is, told apart from what has another type or length."""
    if tree.is_leaf():
        return _text(avals[0])
    if tree.type is type(None):
        return "None"
    if tree.type.__module__ in ("builtins", "collections"):
        return f"a {tree.type.__name__} of length {tree.num_children}"
    return f"an instance of {tree.type.__name__}"


def _text(aval: Aval) -> str:
    if isinstance(aval, ScalarAval) and aval.type is UInt64Integer:
        return "an int of 2**63 or more"
    return str(aval)


def _are_same(was: Aval, now: Aval) -> bool:
    """Whether two avals differ in nothing but the device, which is told once."""
    if isinstance(was, ArrayAval) and isinstance(now, ArrayAval):
        was = array_aval(was.layout, now.device, was.readonly, was.record)
    return was == now
