"""Where in the user's code something was written, for messages."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FrameType

import numba_cuda
import numpy
import optree

# Frames of these packages are never the user's.
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (__file__, numba_cuda.__file__, numpy.__file__, optree.__file__)
)


@dataclass(frozen=True)
class Location:
    """A line of the user's code.

    Parameters
    ----------
    file : str
        Path of the source file, as Python knows it.
    line : int
        Line number.
    function : str
        Name of the function the line stands in.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    @property
    def short(self) -> str:
        """File name and line, for listings."""
        return f"{os.path.basename(self.file)}:{self.line}"


def user_location() -> Location:
    """The innermost frame that belongs neither to graphjit nor to the libraries it calls.

    Returns
    -------
    Location
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_LIBRARIES) and not name.startswith("<frozen "):
            return Location(name, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return Location("<unknown>", 0, "<unknown>")
