"""Pytrees that bodies of loops hand on, and branches hand out: what must stay the same of them."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np
import optree

from graphjit._array import Array
from graphjit._bodies import class_of
from graphjit._errors import TraceError
from graphjit._location import user_location
from graphjit._pytrees import flatten
from graphjit._trace import SCALARS, Trace
from graphjit._tracers import ArrayTracer, ScalarTracer


class CarryTree:
    """What a loop is given, and what each of its iterations must return the like of.

    Parameters
    ----------
    owner : str
        The function that it is given to, for messages.
    trace : Trace
        Where.
    carry : pytree
        The value.
    what, reference : str
        What messages call it, and where it comes from.
    """

    def __init__(
        self,
        owner: str,
        trace: Trace,
        carry: Any,
        what: str = "carry",
        reference: str = "it was given",
    ) -> None:
        self._owner, self._trace, self._what, self._reference = owner, trace, what, reference
        leaves, self._tree = flatten(carry)
        paths = self._tree.paths()
        self.names = [what + "".join(f"[{part!r}]" for part in path) for path in paths]
        self.initial = [
            trace.traced(leaf, name) for leaf, name in zip(leaves, self.names, strict=True)
        ]

    def unflatten(self, leaves: list[Any]) -> Any:
        """A tree of the same structure."""
        return optree.tree_unflatten(self._tree, leaves)

    def checked(self, result: Any, body: str = "body") -> list[Any]:
        """The leaves of what a body returned; raises TraceError if they are unlike the first."""
        _, tree = flatten(result)
        try:
            leaves = self._tree.flatten_up_to(result)  # dicts with their keys in another order too
            if len(leaves) != tree.num_leaves:
                raise ValueError("a leaf is a tree")
        except (ValueError, TypeError):
            raise TraceError(
                f"{self._owner}'s {body} returned a {self._what} of the structure "
                f"{_written(tree)}, and {self._reference} one of the structure "
                f"{_written(self._tree)} (at {user_location()})"
            ) from None
        checked = []
        for leaf, initial, name in zip(leaves, self.initial, self.names, strict=True):
            value = _as_class_of(initial, self._trace.traced(leaf, name))
            before, after = described(initial), described(value)
            if before != after:
                raise TraceError(
                    f"{self._owner}'s {body} changes {name} from {before} to {after} "
                    f"(at {user_location()}); it must be like what {self._reference}"
                    if self._what == "carry"
                    else f"{self._owner}'s {body} gives {name} as {after}, and {self._reference} "
                    f"{before} (at {user_location()})"
                )
            checked.append(value)
        return checked


def _as_class_of(initial: Any, value: Any) -> Any:
    """A number of a class of the same bits as another's, as one of that class."""
    numbers = (ScalarTracer, *SCALARS)
    if not isinstance(initial, numbers) or not isinstance(value, numbers):
        return value
    wanted, given = class_of(initial), class_of(value)
    if wanted is given or wanted.__name__ == "UInt64Integer" or given.__name__ == "UInt64Integer":
        return value
    if np.dtype(wanted) != np.dtype(given):
        return value
    if isinstance(value, ScalarTracer):
        return value._live().scalar_op(wanted.__name__, wanted, (value,))
    return wanted(value)


def alike(before: Any, after: Any) -> bool:
    """Whether a body that was traced for one value is right for the other, which is like it."""
    return not isinstance(before, ArrayTracer) or (
        before._readonly == after._readonly and same_strides(before, after)
    )


def same_strides(before: ArrayTracer, after: ArrayTracer) -> bool:
    """Whether arrays of one shape have their elements at the same distances."""
    strides = zip(before.shape, before.strides, after.strides, strict=True)
    return before.size == 0 or all(n == 1 or one == other for n, one, other in strides)


def described(value: Any) -> str:
    """What must stay the same of a value."""
    if isinstance(value, ArrayTracer):
        return f"{value.dtype}{list(value.shape)}"
    assert isinstance(value, (ScalarTracer, *SCALARS))
    return class_of(value).__name__


def number(value: Any, what: str) -> Any:
    """A number that may be given as an array of one element.

    Raises
    ------
    TraceError
        If it is something else.
    """
    if isinstance(value, (Array, ArrayTracer)) and value.size == 1:
        return value.item()
    if isinstance(value, (ScalarTracer, *SCALARS)):
        return value
    given = f"an array of shape {value.shape}" if hasattr(value, "shape") else repr(value)
    raise TraceError(
        f"{what} is {given} (at {user_location()}); it must be a number, or an array of one element"
    )


def integer(value: Any, what: str) -> Any:
    """An integer that may be traced, or given as an array of one element; raises TypeError."""
    value = number(value, what)
    if not isinstance(value, ScalarTracer):
        return operator.index(value)
    if not issubclass(value._type, int) and not hasattr(value._type, "__index__"):
        raise TypeError(
            f"{what} is a {value._type.__name__} (at {user_location()}); it must be an integer"
        )
    return value


def truth(value: Any, what: str) -> Any:
    """Whether a number isn't zero."""
    value = number(value, what)
    if not isinstance(value, ScalarTracer):
        return bool(value)
    return value if value._type is bool else value != value._type(0)


def _written(tree: Any) -> str:
    """A structure of pytrees as Python writes it, with a star for each leaf."""
    return re.sub(r"^PyTreeSpec\((.*?)(, NoneIsLeaf)?(, namespace='\w+')?\)$", r"\1", str(tree))
