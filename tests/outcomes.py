"""What functions leave in their arguments and results, for comparisons of how they are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphjit as gj


def left_by(run: Callable[..., Any], *args: Any) -> list[Any]:
    """Arguments and results after a call, on the host; host arrays are copied for it."""
    given = [gj.array(a) if isinstance(a, np.ndarray) else a for a in args]
    result = run(*given)
    results = result if isinstance(result, tuple) else (result,)
    return [a.copy_to_host() for a in (*given, *results) if isinstance(a, gj.Array)]


def assert_same(first: list[Any], *others: list[Any]) -> None:
    """Fail unless all arrays are equal."""
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
