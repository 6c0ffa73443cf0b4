"""Where in the user's code something was written, for messages."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FrameType

# Frames of these packages' modules are never the user's.
_LIBRARIES = ("graphjit", "numba", "numpy", "optree")


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
    """Find the innermost frame that belongs neither to graphjit nor to the libraries it calls.

    Returns
    -------
    Location
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in _LIBRARIES:
            code = frame.f_code
            return Location(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return Location("<unknown>", 0, "<unknown>")
