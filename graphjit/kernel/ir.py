"""KernelIR: what graphjit knows of one Numba kernel compiled for one list of argument types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Leaf:
    """One leaf of a kernel's argument list (tuples flattened), and the parameters it becomes.

    Parameters
    ----------
    path : str
        Where the leaf stands, as the user writes it: ``"x"`` or ``"xs[1]"``.
    type : numba.cuda.types.Type
        Its Numba type.
    first : int
        Index of its first LLVM parameter.
    count : int
        How many LLVM parameters it takes.
    """

    path: str
    type: Any
    first: int
    count: int

    @property
    def is_memory(self) -> bool:
        """Whether the leaf is passed by address (an array, a record or a pointer)."""
        return self.data is not None

    @property
    def data(self) -> int | None:
        """Index of the LLVM parameter that holds the data pointer, or None for a value."""
        kind = type(self.type).__name__
        if kind in ("Record", "CPointer"):
            return self.first
        # meminfo, parent, nitems, itemsize, data, shape..., strides...
        return self.first + 4 if hasattr(self.type, "ndim") else None


@dataclass(frozen=True)
class Effects:
    """What a launch may do to memory; conservative, so "writes" means *may* write.

    Parameters
    ----------
    reads, writes : frozenset of str
        Paths of the argument leaves whose memory is read or written.
    captured : bool
        Whether the kernel embeds device arrays it closes over (taken as read and written).
    prints, traps : bool
        Whether a launch can be observed otherwise; such a launch is never dead.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    captured: bool = False
    prints: bool = False
    traps: bool = False


@dataclass(frozen=True, eq=False)
class KernelIR:
    """One kernel for one list of argument types, with no backend in it.

    Parameters
    ----------
    name : str
        Name of the Python function.
    entry : str
        LLVM symbol of the kernel in `llvm`.
    argtypes : tuple of numba.cuda.types.Type
        The types it was compiled for.
    leaves : tuple of Leaf
        The flattened arguments, in order.
    llvm : str
        Textual LLVM IR for nvptx64: the kernel and every device function it calls, unoptimised.
    externals : frozenset of str
        Names of the functions `llvm` declares and does not define (intrinsics, libdevice, C code).
    effects : Effects
        What a launch may read and write.
    accesses : tuple of Expression
        The addresses it loads from and stores to (see `graphjit.kernel.access`).
    linked : tuple of str
        Foreign code the kernel links (CUDA C files, PTX, ...), described for messages.
    captured : tuple
        Device arrays whose address the IR embeds; kept alive by this object.
    fastmath : bool
        Whether the user allowed fast maths.
    cooperative : bool
        Whether the kernel synchronises the whole grid.
    dispatcher : numba.cuda.dispatcher.CUDADispatcher
        The user's kernel.
    """

    name: str
    entry: str
    argtypes: tuple[Any, ...]
    leaves: tuple[Leaf, ...]
    llvm: str = field(repr=False)
    externals: frozenset[str] = field(repr=False)
    effects: Effects
    accesses: tuple[Any, ...] = field(default=(), repr=False)
    linked: tuple[str, ...] = ()
    captured: tuple[Any, ...] = ()
    fastmath: bool = False
    cooperative: bool = False
    dispatcher: Any = field(default=None, repr=False)
