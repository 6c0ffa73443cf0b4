"""What an executable is, on every backend.

Compiled where there is a C compiler (see `setup.py`), so that a replay calls it directly.
"""

from __future__ import annotations

from typing import Any

from graphjit.backends.binding_stats import BindingStats

# Named, since Cython takes the bare types for ones of C in the signature of a compiled function.
Pointers = list[int]


class Executable:
    """A Schedule instantiated on a device."""

    __slots__ = ("__weakref__",)

    def run(self, pointers: Pointers, scalars: Any, stream: Any) -> None:
        """Replay once.

        Parameters
        ----------
        pointers : list of int
            Lowest address of each buffer in `Schedule.externals`, in order; it is the executable's
            from then on.
        scalars : sequence
            Value of each scalar in `Schedule.scalars`, in order.
        stream : int or None
            Stream handle on a backend that has streams; None for the default one.
        """
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that it owns."""
        raise NotImplementedError

    def binding_stats(self) -> BindingStats:
        """How its calls were bound."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the executable owns; a second call does nothing."""
        raise NotImplementedError
