"""What users say that their kernels do to memory, in place of what is inferred."""

from __future__ import annotations

import dataclasses
import inspect
import weakref
from typing import Any

from graphjit.kernel.ir import Effects, Leaf, expand

_declared: weakref.WeakKeyDictionary[Any, Declared] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Declared:
    """What was said of one kernel: paths of arguments, and what isn't left to be inferred."""

    reads: frozenset[str]
    writes: frozenset[str]
    others: tuple[tuple[str, bool], ...]

    def applied(self, effects: Effects, leaves: tuple[Leaf, ...]) -> Effects:
        """Effects with it in place of what was inferred."""
        return dataclasses.replace(
            effects,
            reads=expand(self.reads, leaves),
            writes=expand(self.writes, leaves),
            **dict(self.others),
        )


def declared_for(kernel: Any) -> Declared | None:
    """What was said of a kernel."""
    return _declared.get(kernel)


def declare_effects(
    kernel: Any,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    captured: bool | None = None,
    prints: bool | None = None,
    traps: bool | None = None,
) -> None:
    """Say what a kernel reads and writes, in place of what graphjit infers from its IR.

    Parameters
    ----------
    kernel : numba.cuda.dispatcher.CUDADispatcher
        A `@cuda.jit` kernel; its earlier traces are not touched.
    reads, writes : tuple of str
        Names of the array arguments whose contents a launch uses, and may change. An argument
        that is only partly overwritten needs only `writes`: what isn't overwritten survives.
    captured : bool, optional
        Whether it may write the device arrays it closes over; if not given, any that there are.
    prints, traps : bool, optional
        Whether it prints, and whether it can stop with an error; as inferred if not given.

    Raises
    ------
    ValueError
        If a name isn't a parameter of the kernel.

    Examples
    --------
    >>> import graphjit as gj
    >>> from numba import cuda
    >>> @cuda.jit
    ... def copy(x, out):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = x[i]
    >>> gj.declare_effects(copy, reads=("x",), writes=("out",))
    """
    names = list(inspect.signature(kernel.py_func).parameters)
    for name in (*reads, *writes):
        if name.split("[")[0] not in names:
            raise ValueError(
                f"{kernel.py_func.__name__} has no argument {name!r}; it has {', '.join(names)}"
            )
    others = {"captured": captured, "prints": prints, "traps": traps}
    said = tuple((name, value) for name, value in others.items() if value is not None)
    _declared[kernel] = Declared(frozenset(reads), frozenset(writes), said)
