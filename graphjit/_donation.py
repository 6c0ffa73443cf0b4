"""Donated arguments: which can be given away, and to whom their memory belongs after a call."""

from __future__ import annotations

from graphjit._array import Array
from graphjit._errors import ArgumentError
from graphjit._inputs import Closures, Input, Leaves
from graphjit._location import called_at
from graphjit._memory import Handle


def refuse(
    name: str, donated: tuple[Input, ...], leaves: Leaves, given: Leaves, closures: Closures
) -> None:
    """Raise for donated arguments whose memory isn't the caller's alone to give.

    Parameters
    ----------
    name : str
        The function, for messages.
    donated : tuple of Input
        The arguments.
    leaves, given : tuple
        All argument leaves as arrays and numbers, and as the caller gave them.
    closures : tuple of (Handle, int, bool)
        Closed-over arrays.

    Raises
    ------
    ArgumentError
        If one is another library's, or another argument or closure shares its memory.
    ClosedError
        If one was closed or donated before.
    """
    for entry in donated:
        memory = entry.alive(leaves, name)._memory
        if not isinstance(given[entry.leaf], Handle):
            cls = type(given[entry.leaf]).__name__
            problem = f"is a {cls}, whose memory graphjit doesn't own"
        elif memory.exported:
            problem = "is memory that another library has or was given the address of"
        elif any(
            isinstance(other, Handle) and other._memory is memory
            for leaf, other in enumerate(leaves)
            if leaf != entry.leaf
        ):
            problem = "shares its memory with another argument"
        elif any(array._memory is memory for array, _, _ in closures):
            problem = "shares its memory with an array that the function closes over"
        else:
            continue
        raise ArgumentError(
            f"{name}(): the donated argument {entry.name} {problem}; don't donate it{called_at()}"
        )


def give_away(
    name: str, donated: tuple[Input, ...], leaves: Leaves, given: Leaves
) -> tuple[Leaves, Leaves]:
    """The arguments with the donated memory under new owners: what isn't returned is freed.

    Parameters
    ----------
    name, donated, leaves, given
        As for `refuse`.

    Returns
    -------
    tuple of (tuple, tuple)
        Leaves and given leaves, for what the function returns.
    """
    kept, returned = list(leaves), list(given)
    for entry in donated:
        array: Handle = leaves[entry.leaf]
        memory = array._lose(f"this array was donated to {name}")
        kept[entry.leaf] = returned[entry.leaf] = Array(memory, array._start, array._aval)
    return tuple(kept), tuple(returned)
