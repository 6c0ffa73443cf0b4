"""The options of a graphed function that its executables depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphjit.schedule.schedule import REUSE_FROM

PASSES = ("copies", "dead_work", "constants", "fusion", "programmatic_launch")
"""What `optimize` may name."""


def passes(given: bool | str | Sequence[str]) -> frozenset[str]:
    """The passes that `optimize=` names: all, none, or some."""
    if isinstance(given, bool):
        return frozenset(PASSES if given else ())
    names = frozenset((given,) if isinstance(given, str) else given)
    if not names <= set(PASSES):
        wrong = ", ".join(repr(name) for name in sorted(names - set(PASSES)))
        raise ValueError(f"optimize is True, False or some of {', '.join(PASSES)}, not {wrong}")
    return names


@dataclass(frozen=True)
class Options:
    """How a graphed function is compiled, and how its calls treat memory.

    Parameters
    ----------
    inputs : {"auto", "copy", "rebind"}
        Whether arguments are used in place ("rebind"), copied into static buffers, or what is
        cheaper.
    outputs : {"fresh", "static"}
        Whether each call gets new result arrays or the same ones.
    donated : tuple of str
        Parameters whose memory a call gives away.
    reuse_from : int
        Temporaries of at least so many bytes wait for each other's memory.
    optimize : frozenset of str
        The passes that change what runs.
    """

    inputs: str = "auto"
    outputs: str = "fresh"
    donated: tuple[str, ...] = ()
    reuse_from: int = REUSE_FROM
    optimize: frozenset[str] = frozenset(PASSES)

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("inputs", self.inputs, ("auto", "copy", "rebind")),
            ("outputs", self.outputs, ("fresh", "static")),
        ):
            if value not in choices:
                raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, not {value!r}")
        if not isinstance(self.reuse_from, int) or self.reuse_from < 0:
            raise ValueError(f"reuse_from is a number of bytes, not {self.reuse_from!r}")
