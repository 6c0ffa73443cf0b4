"""The tiled matrix transpose."""

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np
from numba import cuda

import graphjit as gj

_TILE = 32
# A spare column, so that the elements of one column of the tile are in different banks.
_TILE_WIDTH = _TILE + 1
_ROWS = 8


def transpose(a: gj.Array) -> gj.Array:
    """Copy the transpose of a matrix into a fresh row-major array.

    Unlike the view `a.T`, the result can be read along its rows at full speed. Tiles pass through
    shared memory, so that both the reads and the writes are of consecutive addresses.

    Parameters
    ----------
    a : Array
        Shape (m, n), any strides.

    Returns
    -------
    Array
        Shape (n, m), the dtype of `a`.

    Raises
    ------
    ValueError
        If `a` isn't two-dimensional.

    References
    ----------
    G. Ruetsch and P. Micikevicius, "Optimizing Matrix Transpose in CUDA", NVIDIA, 2009.

    Examples
    --------
    >>> import graphjit as gj
    >>> from graphjit import kernels
    >>> kernels.transpose(gj.arange(6).reshape(2, 3)).copy_to_host()
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    if a.ndim != 2:
        raise ValueError(f"transpose needs a matrix, got an array of shape {a.shape}")
    rows, columns = a.shape
    out: gj.Array = gj.empty((columns, rows), dtype=a.dtype)
    if out.size:
        across = -(-columns // _TILE)
        # One grid axis: the second one ends at 65535 blocks.
        grid = across * -(-rows // _TILE)
        _kernel(np.dtype(a.dtype))[grid, (_TILE, _ROWS)](a, out, across)
    return out


@functools.cache
def _kernel(dtype: np.dtype[Any]) -> Any:
    number = numba.from_dtype(dtype)

    @cuda.jit
    def transpose(a: Any, out: Any, across: int) -> None:
        tile = cuda.shared.array((_TILE, _TILE_WIDTH), number)
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        row = cuda.blockIdx.x // across * _TILE
        column = cuda.blockIdx.x % across * _TILE
        for k in range(y, _TILE, _ROWS):
            if row + k < a.shape[0] and column + x < a.shape[1]:
                tile[k, x] = a[row + k, column + x]
        cuda.syncthreads()
        for k in range(y, _TILE, _ROWS):
            if column + k < a.shape[1] and row + x < a.shape[0]:
                out[column + k, row + x] = tile[x, k]

    gj.declare_effects(transpose, reads=("a",), writes=("out",))
    return transpose
