"""Kernels that do what several do, thread by thread: one launch where there were many.

A composed kernel is one that graphjit writes (`generated`): it calls the users' functions as device
functions, so every backend compiles it like any other. What one of them hands on to the next and
nobody else needs is a private array: an element of the thread's own, which has the shape of the
array that it stands for and the stride 0, so that any index finds it and LLVM keeps it in a
register.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from numba import cuda

from graphjit.kernel import frontend
from graphjit.kernel.composed_arrays import (
    hidden_element,
    moved_array,
    private_array,
    shaped_array,
)
from graphjit.kernel.generated import generated
from graphjit.kernel.ir import KernelIR

# Names of so many kernels are spelt out.
_NAMED = 3
# Each of so many threads of a block may use all the registers that a thread can have.
_UNBOUND = 256


@dataclass(frozen=True)
class Part:
    """One of the kernels that are composed.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.
    arguments : tuple of int
        What it is called with: arguments of the composed kernel, or with -1 for the first one,
        -2 for the second, private arrays.
    hidden : frozenset of int
        Those of them whose contents its compiler must not know from the parts before.
    """

    kernel: KernelIR
    arguments: tuple[int, ...]
    hidden: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Private:
    """A thread's own element in place of an array.

    Parameters
    ----------
    type : numba.cuda.types.Array
        The array's type.
    shape : tuple of int
        The arguments that are its lengths.
    """

    type: Any
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """Where the lengths and strides of an array are found.

    Arrays of one shape share them, so that a compiler knows that they are the same.

    Parameters
    ----------
    array : int
        The argument that is the array.
    shape, strides : tuple of int
        The arguments that are its lengths and strides.
    """

    array: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Composition:
    """A kernel whose threads do what those of its parts do, one part after the other.

    Parameters
    ----------
    parts : tuple of Part
        The kernels, launched over the same grid.
    argtypes : tuple of numba.cuda.types.Type
        The arguments of the composed kernel.
    private : tuple of Private
        Arrays that are a thread's own.
    shapes : tuple of Shape
        Of the arrays among the arguments.
    zero : int
        The argument that is zero when it runs, if anything is hidden.
    unaliased : frozenset of int
        The arrays among the arguments that share no memory with others, and are written.
    threads : int
        How many threads its blocks have.
    """

    parts: tuple[Part, ...]
    argtypes: tuple[Any, ...]
    private: tuple[Private, ...] = ()
    shapes: tuple[Shape, ...] = ()
    zero: int = -1
    unaliased: frozenset[int] = frozenset()
    threads: int = 1


def compose(composition: Composition) -> KernelIR:
    """Compile a composed kernel.

    Parameters
    ----------
    composition : Composition
        What it is made of.

    Returns
    -------
    KernelIR

    Raises
    ------
    KernelCompileError
        If Numba can't compile it.
    """
    parts = composition.parts
    bound = composition.threads if composition.threads > _UNBOUND else None
    shape = tuple((part.kernel.dispatcher, part.arguments, part.hidden) for part in parts)
    key = (shape, composition.private, composition.shapes, composition.zero, bound)
    known = _composed_from(parts[0].kernel.dispatcher)
    made = known.get(key)
    if made is None:
        made = known.setdefault(key, _composed(composition, bound))
    return frontend.kernel_ir(made, composition.argtypes, composition.unaliased)


@frontend.per_kernel
def _composed_from(dispatcher: Any) -> dict[Any, Any]:
    """The composed kernels that begin with a kernel: they go with it."""
    return {}


def _name(parts: tuple[Part, ...]) -> str:
    names = [re.sub(r"\W", "_", part.kernel.name, flags=re.ASCII) for part in parts]
    if len(names) <= _NAMED:
        return "_and_".join(names)
    return f"{names[0]}_to_{names[-1]}_{len(names)}"


def _composed(composition: Composition, bound: int | None) -> Any:
    names: dict[str, Any] = {}
    functions: dict[Any, str] = {}
    lines = []
    for number, array in enumerate(composition.private):
        names[f"private{number}"] = private_array(array.type)
        lines.append(f"p{number} = private{number}({_tuple(array.shape)})")
    for each in composition.shapes:
        names[f"shaped{len(each.shape)}"] = shaped_array(len(each.shape))
        lengths, strides = _tuple(each.shape), _tuple(each.strides)
        lines.append(
            f"a{each.array} = shaped{len(each.shape)}(a{each.array}, {lengths}, {strides})"
        )
    for part in composition.parts:
        dispatcher = part.kernel.dispatcher
        if dispatcher not in functions:
            functions[dispatcher] = function = f"f{len(functions)}"
            names[function] = cuda.jit(dispatcher.py_func, device=True)
        called = {n: f"a{n}" if n >= 0 else f"p{-1 - n}" for n in part.arguments}
        for argument in sorted(part.hidden):
            names["hidden"], names["moved"] = hidden_element, moved_array
            if argument < 0:
                lines.append(f"hidden({called[argument]}, a{composition.zero})")
            else:
                called[argument] = f"moved(a{argument}, a{composition.zero})"
        lines.append(f"{functions[dispatcher]}({', '.join(called[n] for n in part.arguments)})")
    parameters = ", ".join(f"a{n}" for n in range(len(composition.argtypes)))
    name = _name(composition.parts)
    text = "\n    ".join([f"def {name}({parameters}):", *lines]) + "\n"
    options: dict[str, Any] = {"fastmath": composition.parts[0].kernel.fastmath}
    if bound is not None:
        options["launch_bounds"] = bound
    return generated(name, text, names, **options)


def _tuple(arguments: tuple[int, ...]) -> str:
    return "(" + "".join(f"a{n}, " for n in arguments) + ")"
