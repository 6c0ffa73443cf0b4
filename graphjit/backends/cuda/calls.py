"""The driver calls of every replay.

`calls.pyx` has the same without Python in between, for compiled modules: cuda.bindings takes up to
half a microsecond a call to convert arguments and results.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from cuda.bindings import driver

PLACE = struct.Struct("=QQQ")


def load() -> None:
    """Find the functions; before the first call of them."""


def write_words(places: bytes, words: list[int]) -> None:
    """Write words to host memory.

    Parameters
    ----------
    places : bytes
        Packed by `PLACE`, for each word: its address, which it is, and what to add to it.
    words : list of int
        The words.
    """
    for address, word, addend in PLACE.iter_unpack(places):
        ctypes.c_uint64.from_address(address).value = words[word] + addend


def current_context() -> int:
    """Address of this thread's context, 0 if it has none."""
    return int(driver.cuCtxGetCurrent()[1])


def launch(executable: int, stream: int) -> int:
    """`cuGraphLaunch` of an executable graph's address, on a stream's; the error code."""
    return int(driver.cuGraphLaunch(executable, stream)[0])


def repoint(executable: int, node: int, params: Any, address: int) -> int:
    """`cuGraphExecKernelNodeSetParams` with a structure of which both is given; the error code."""
    return int(driver.cuGraphExecKernelNodeSetParams(executable, node, params)[0])
