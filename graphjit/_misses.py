"""Why a call was traced anew."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphjit._differences import differences
from graphjit._guards import Guard
from graphjit._location import Location, user_location
from graphjit._locks import make_lock
from graphjit._signature import Key

_log = logging.getLogger("graphjit")


@dataclass(frozen=True)
class Miss:
    """A call that had to be traced.

    Parameters
    ----------
    function : str
        The graphed function's name.
    reasons : tuple of str
        What differed from the most similar call before, or what else was the cause.
    location : Location
        The line that made the call.
    """

    function: str
    reasons: tuple[str, ...]
    location: Location

    def __str__(self) -> str:
        return f"{self.function} is traced at {self.location}: {'; '.join(self.reasons)}"


_listeners: list[list[Miss]] = []
_lock = make_lock()
_always = os.environ.get("GRAPHJIT_EXPLAIN_MISSES", "0") not in ("", "0")


@contextlib.contextmanager
def explain_misses() -> Iterator[list[Miss]]:
    """Say why calls are traced, on whichever thread, within a ``with`` block.

    Each such call is logged as a warning of the logger ``"graphjit"``, which Python prints unless
    told otherwise, and kept in the list that the block is given. The environment variable
    GRAPHJIT_EXPLAIN_MISSES=1 logs them from the start, ``graphed(explain_misses=True)`` those of
    one function.

    Yields
    ------
    list of Miss
        The calls traced since the block began.

    Examples
    --------
    >>> import graphjit as gj
    >>> double = gj.graphed(lambda x: x.copy())
    >>> _ = double(gj.zeros(3))
    >>> with gj.explain_misses() as misses:
    ...     _ = double(gj.zeros(4))
    >>> misses[0].reasons
    ('argument x was float64[3] and is float64[4]',)
    """
    mine: list[Miss] = []
    with _lock:
        _listeners.append(mine)
    try:
        yield mine
    finally:
        with _lock:
            # By identity: lists of other blocks may be equal.
            _listeners[:] = [kept for kept in _listeners if kept is not mine]


def is_listening() -> bool:
    """Whether anybody wants to know."""
    return _always or bool(_listeners)


def report(function: str, reasons: tuple[str, ...]) -> None:
    """Tell of a miss."""
    miss = Miss(function, reasons, user_location())
    _log.warning("%s", miss)
    with _lock:
        for kept in _listeners:
            kept.append(miss)


def reasons_for(key: Key, known: Iterable[Key], changed: Guard | None) -> tuple[str, ...]:
    """What a call's key has that no key before had.

    Parameters
    ----------
    key : Key
        The call's.
    known : iterable of Key
        Those of calls before, the one used last first.
    changed : Guard or None
        What doesn't hold any more, where the key itself was known.

    Returns
    -------
    tuple of str
    """
    if changed is not None:
        return (f"{changed} between calls",)
    found = min((differences(other, key) for other in known), key=len, default=None)
    return ("nothing is compiled for it yet",) if found is None else tuple(found)
