"""KernelIR: what graphjit knows of one Numba kernel compiled for one list of argument types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from numba.cuda import types

from graphjit.kernel.pointwise import Pointwise


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
        if isinstance(self.type, (types.Record, types.CPointer)):
            return self.first
        # meminfo, parent, nitems, itemsize, data, shape..., strides...
        return self.first + 4 if isinstance(self.type, types.Array) else None


@dataclass(frozen=True)
class Effects:
    """What a launch may do to memory; conservative, so "writes" means *may* write.

    Parameters
    ----------
    reads, writes : frozenset of str
        Paths of the argument leaves whose memory is read or written.
    captured : bool
        Whether it may write the device arrays that it closes over; it is taken to read them.
    prints, traps : bool
        Whether a launch can be observed otherwise; such a launch is never dead, and launches that
        print do so in order.
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
    elements : Pointwise
        Which elements of its arguments each thread touches.
    unaliased : frozenset of int
        LLVM parameters that are pointers to memory used through nothing else.
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
    elements: Pointwise = field(default=Pointwise(), repr=False)
    unaliased: frozenset[int] = frozenset()
    linked: tuple[str, ...] = ()
    captured: tuple[Any, ...] = ()
    fastmath: bool = False
    cooperative: bool = False
    dispatcher: Any = field(default=None, repr=False)


def leaves_of(names: Iterable[str], argtypes: tuple[Any, ...]) -> Iterator[Leaf]:
    """The flattened arguments of a kernel, from their names and types."""
    first = 0
    for name, type_ in zip(names, argtypes, strict=True):
        for path, leaf in _flatten(name, type_):
            count = _parameter_count(leaf)
            yield Leaf(path, leaf, first, count)
            first += count


def _flatten(path: str, type_: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(type_, types.BaseTuple):
        for index, element in enumerate(type_):
            yield from _flatten(f"{path}[{index}]", element)
    else:
        yield path, type_


def _parameter_count(type_: Any) -> int:
    if isinstance(type_, types.Array):
        return 5 + 2 * int(type_.ndim)
    return 2 if isinstance(type_, types.Complex) else 1


def expand(paths: frozenset[str], leaves: tuple[Leaf, ...]) -> frozenset[str]:
    """Every memory leaf that a declared path names, a whole tuple included."""
    return frozenset(
        leaf.path
        for leaf in leaves
        if leaf.is_memory and (leaf.path in paths or leaf.path.split("[")[0] in paths)
    )
