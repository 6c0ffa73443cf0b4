"""Progress bars of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphjit._callbacks import host_callback


class ProgressBar:
    """A bar that is told how many iterations are done.

    Parameters
    ----------
    name : str
        What it says in front.
    total : int
        Iterations in all.
    """

    def __init__(self, name: str, total: int) -> None:
        self._name, self.total = name, total
        self._bar: Any = None

    def tells(self, step: Callable[[Any, Any], Any], first: int) -> Callable[[Any, Any], Any]:
        """A step that tells the bar how far its loop is, given the index of the first iteration."""
        rest = self.total % self.every

        def told(index: Any, carry: Any) -> Any:
            result = step(index, carry)
            host_callback(self, index - first + 1 + rest, every=self.every)
            return result

        return told

    @property
    def every(self) -> int:
        """In how many iterations it needs to be told once."""
        return max(1, self.total // 100)

    def __call__(self, done: int) -> None:
        """Show that so many iterations are done; fewer than before are those of another run."""
        from tqdm.auto import tqdm

        if self._bar is not None and done < self._bar.n:
            self.close()
        if self._bar is None:
            self._bar = tqdm(total=self.total, desc=self._name)
        self._bar.update(done - self._bar.n)
        if done >= self.total:
            self.close()

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None
