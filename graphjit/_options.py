"""The options of a graphed function that its executables depend on."""

from __future__ import annotations

from dataclasses import dataclass

from graphjit.schedule.schedule import REUSE_FROM


@dataclass(frozen=True)
class Options:
    """How the calls of a graphed function treat memory.

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
    """

    inputs: str = "auto"
    outputs: str = "fresh"
    donated: tuple[str, ...] = ()
    reuse_from: int = REUSE_FROM

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("inputs", self.inputs, ("auto", "copy", "rebind")),
            ("outputs", self.outputs, ("fresh", "static")),
        ):
            if value not in choices:
                raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, not {value!r}")
        if not isinstance(self.reuse_from, int) or self.reuse_from < 0:
            raise ValueError(f"reuse_from is a number of bytes, not {self.reuse_from!r}")
