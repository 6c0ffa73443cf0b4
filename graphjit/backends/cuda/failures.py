"""What replays said about indices, asked for once the device has nothing left to do.

A replay is queued, and its call returns, before the device computes an index. One that is out of
bounds is told by whatever waits for the device next.
"""

from __future__ import annotations

import ctypes

from cuda.bindings import driver

from graphjit._memory import Memory
from graphjit.backends.cuda.driver import check
from graphjit.schedule.schedule import Schedule

# By the address of their slots: the schedules of replays that were not looked at since.
_launched: dict[int, tuple[Schedule, Memory]] = {}


def note_launch(schedule: Schedule, slots: Memory) -> None:
    """Say that a replay was queued that computes indices."""
    _launched[slots.address] = schedule, slots


def raise_failures() -> None:
    """Raise IndexError for an index that was out of bounds; the device must be idle.

    Raises
    ------
    IndexError
        For one replay at a time; the rest is kept for the next look.
    """
    while _launched:
        address, (schedule, _) = _launched.popitem()
        place = address + 8 * schedule.failure
        words = (ctypes.c_int64 * 2)()
        copied = driver.cuMemcpyDtoH(ctypes.addressof(words), place, 16)
        check(copied, "asking for what failed")
        if words[0]:
            check(driver.cuMemsetD8(place, 0, 16), "forgetting what failed")
            raise schedule.index_error(words[0], words[1])
