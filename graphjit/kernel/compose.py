"""Kernels that do what several do, thread by thread: one launch where there were many.

A composed kernel is one that graphjit writes (`generated`): it calls the users' functions as device
functions, so every backend compiles it like any other. What one of them hands on to the next and
nobody else needs is a private array: an element of the thread's own, which has the shape of the
array that it stands for and the stride 0, so that any index finds it and LLVM keeps it in a
register.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from graphjit.kernel import frontend
from graphjit.kernel.generated import generated
from graphjit.kernel.ir import KernelIR

_KEPT = 256
# Names of so many kernels are spelt out.
_NAMED = 3


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
    """

    kernel: KernelIR
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Private:
    """A thread's own element in place of an array.

    Parameters
    ----------
    type : numba.cuda.types.Array
        The array's type.
    sizes : tuple of int
        The arguments that are its lengths.
    """

    type: Any
    sizes: tuple[int, ...]


def compose(
    parts: tuple[Part, ...], argtypes: tuple[Any, ...], private: tuple[Private, ...] = ()
) -> KernelIR:
    """A kernel whose threads do what those of the parts do, one part after the other.

    Parameters
    ----------
    parts : tuple of Part
        The kernels, launched over the same grid.
    argtypes : tuple of numba.cuda.types.Type
        The arguments of the composed kernel.
    private : tuple of Private
        Arrays that are a thread's own.

    Returns
    -------
    KernelIR

    Raises
    ------
    KernelCompileError
        If Numba can't compile it.
    """
    shape = tuple((part.kernel.dispatcher, part.arguments) for part in parts)
    known = _composed_from(parts[0].kernel.dispatcher)
    made = known.get((shape, private))
    if made is None:
        made = _composed(shape, private, parts[0].kernel.fastmath, _name(parts))
        made = known.setdefault((shape, private), made)
    return frontend.kernel_ir(made, argtypes)


@frontend.per_kernel
def _composed_from(dispatcher: Any) -> dict[Any, Any]:
    """The composed kernels that begin with a kernel: they go with it."""
    return {}


def _name(parts: tuple[Part, ...]) -> str:
    names = [re.sub(r"\W", "_", part.kernel.name, flags=re.ASCII) for part in parts]
    if len(names) <= _NAMED:
        return "_and_".join(names)
    return f"{names[0]}_to_{names[-1]}_{len(names)}"


def _composed(
    shape: tuple[tuple[Any, tuple[int, ...]], ...],
    private: tuple[Private, ...],
    fastmath: bool,
    name: str,
) -> Any:
    names: dict[str, Any] = {}
    functions: dict[Any, str] = {}
    lines = []
    for number, array in enumerate(private):
        names[f"private{number}"] = _private(array.type.dtype, array.type.ndim)
        sizes = "".join(f"a{size}, " for size in array.sizes)
        lines.append(f"    p{number} = private{number}(({sizes}))")
    for dispatcher, arguments in shape:
        if dispatcher not in functions:
            functions[dispatcher] = function = f"f{len(functions)}"
            names[function] = cuda.jit(dispatcher.py_func, device=True)
        given = ", ".join(f"a{n}" if n >= 0 else f"p{-1 - n}" for n in arguments)
        lines.append(f"    {functions[dispatcher]}({given})")
    used = [n for _, arguments in shape for n in arguments] + [n for p in private for n in p.sizes]
    parameters = ", ".join(f"a{n}" for n in range(max(used, default=-1) + 1))
    text = f"def {name}({parameters}):\n" + "\n".join(lines) + "\n"
    return generated(name, text, names, fastmath=fastmath)


@functools.lru_cache(_KEPT)
def _private(dtype: Any, ndim: int) -> Any:
    """A function that makes a private array from a tuple of lengths."""
    array = types.Array(dtype, ndim, "A")

    @intrinsic  # type: ignore[untyped-decorator]
    def private(context: Any, lengths: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            element = context.get_data_type(dtype)
            with builder.goto_entry_block():
                slot = builder.alloca(element)
            word = context.get_value_type(types.intp)
            made = context.make_array(array)(context, builder)
            size = ir.Constant(word, context.get_abi_sizeof(element))
            count, none = ir.Constant(word, 1), ir.Constant(word, 0)
            strides = ir.Constant(ir.ArrayType(word, ndim), [none] * ndim)
            for axis in range(ndim):
                count = builder.mul(count, builder.extract_value(args[0], axis))
            made.data = builder.bitcast(slot, made.data.type)
            made.shape, made.strides = args[0], strides
            made.itemsize, made.nitems = size, count
            made.meminfo = ir.Constant(made.meminfo.type, None)
            made.parent = ir.Constant(made.parent.type, None)
            return made._getvalue()

        return array(lengths), codegen

    return private
