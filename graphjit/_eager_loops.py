"""Loops outside graphed functions: how many iterations they have done."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class _Running(threading.local):
    def __init__(self) -> None:
        self.iterations: list[int] = []


_running = _Running()


def eager_iterations() -> list[int]:
    """For each loop that runs on this thread outside a trace, the iterations that it has done."""
    return _running.iterations


def counted(items: Iterable[T]) -> Iterator[T]:
    """The items, each while a loop runs that has done as many iterations as came before it."""
    place = len(_running.iterations)
    for done, item in enumerate(items):
        _running.iterations[place:] = [done]
        try:
            yield item
        finally:
            del _running.iterations[place:]
