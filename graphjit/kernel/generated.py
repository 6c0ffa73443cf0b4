"""Kernels that graphjit writes itself, as Numba kernels."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

from numba import cuda

from graphjit.kernel.ir import KernelIR


@dataclass(frozen=True)
class GeneratedLaunch:
    """A launch of one of graphjit's own kernels.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.
    operands : tuple of View or number
        Its arguments.
    grid, block : tuple of int
        Launch configuration.
    """

    kernel: KernelIR
    operands: tuple[Any, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


def generated(name: str, text: str, names: dict[str, Any], **options: Any) -> Any:
    """The kernel of that name that a text defines.

    Parameters
    ----------
    name, text : str
        Its name, and its source.
    names : dict
        The globals that it uses, besides `cuda`.
    **options
        What `cuda.jit` takes.
    """
    file = f"<graphjit {name} {abs(hash(text)):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace: dict[str, Any] = {"cuda": cuda, **names}
    exec(compile(text, file, "exec"), namespace)
    return cuda.jit(namespace[name], **options)
