"""Launch configurations: how many blocks, threads and bytes of shared memory are possible."""

from __future__ import annotations

import numpy as np

from graphjit._errors import LaunchError
from graphjit._location import Location

# What CUDA allows on every device that Numba supports.
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_MAX_THREADS = 1024
_MAX_SHARED = 227 * 1024


def three(dims: tuple[int, ...]) -> tuple[int, int, int]:
    """Dimensions as three."""
    x, y, z = (*(int(d) for d in dims), 1, 1)[:3]
    return x, y, z


def check_configuration(
    name: str, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, where: Location
) -> None:
    """Raise LaunchError if a configuration is impossible."""
    for what, dims, limits in (("grid", grid, _MAX_GRID), ("block", block, _MAX_BLOCK)):
        for axis, length, limit in zip("xyz", dims, limits, strict=False):
            if not 1 <= length <= limit:
                raise LaunchError(
                    f"{name} was launched at {where} with a {what} of {tuple(dims)}: "
                    f"{axis} must be from 1 to {limit}"
                )
    threads = int(np.prod(block))
    if threads > _MAX_THREADS:
        raise LaunchError(
            f"{name} was launched at {where} with {threads} threads a block; "
            f"at most {_MAX_THREADS} are possible"
        )
    if not 0 <= shared_bytes <= _MAX_SHARED:
        raise LaunchError(
            f"{name} was launched at {where} with {shared_bytes} bytes of dynamic shared memory; "
            f"from 0 to {_MAX_SHARED} are possible"
        )
