"""Arrays as composed kernels hand them to their parts."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

_KEPT = 256


@functools.lru_cache(_KEPT)
def private_array(array: Any) -> Any:
    """A function that makes an array out of one element, from a tuple of lengths.

    The element is the thread's own, and the strides are 0: any index finds it.

    Parameters
    ----------
    array : numba.cuda.types.Array
        The type of the array that it stands for.
    """
    made_type = types.Array(array.dtype, array.ndim, "A")

    @intrinsic  # type: ignore[untyped-decorator]
    def private(context: Any, lengths: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            element = context.get_data_type(array.dtype)
            with builder.goto_entry_block():
                slot = builder.alloca(element)
            word = context.get_value_type(types.intp)
            made = context.make_array(made_type)(context, builder)
            none = ir.Constant(word, 0)
            made.data = builder.bitcast(slot, made.data.type)
            made.strides = ir.Constant(ir.ArrayType(word, array.ndim), [none] * array.ndim)
            made.itemsize = ir.Constant(word, context.get_abi_sizeof(element))
            made.meminfo = ir.Constant(made.meminfo.type, None)
            made.parent = ir.Constant(made.parent.type, None)
            _set_lengths(builder, made, args[0])
            return made._getvalue()

        return made_type(lengths), codegen

    return private


@functools.lru_cache(_KEPT)
def shaped_array(ndim: int) -> Any:
    """A function that gives an array its lengths and strides anew, from two tuples."""

    @intrinsic  # type: ignore[untyped-decorator]
    def shaped(context: Any, array: Any, lengths: Any, strides: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = context.make_array(array)(context, builder, args[0])
            made.strides = args[2]
            _set_lengths(builder, made, args[1])
            return made._getvalue()

        return array(array, lengths, strides), codegen

    return shaped


def _set_lengths(builder: Any, array: Any, lengths: Any) -> None:
    count = ir.Constant(array.nitems.type, 1)
    for axis in range(lengths.type.count):
        count = builder.mul(count, builder.extract_value(lengths, axis))
    array.shape, array.nitems = lengths, count


@intrinsic  # type: ignore[untyped-decorator]
def moved_array(context: Any, array: Any, offset: Any) -> Any:
    """The array so many bytes further: with 0, memory of which a compiler knows nothing."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(array)(context, builder, args[0])
        data = builder.bitcast(made.data, ir.IntType(8).as_pointer())
        made.data = builder.bitcast(builder.gep(data, [args[1]]), made.data.type)
        return made._getvalue()

    return array(array, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def hidden_element(context: Any, array: Any, zero: Any) -> Any:
    """Change the element of a private array by nothing that a compiler knows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(array)(context, builder, args[0])
        value = builder.load(made.data)
        if isinstance(array.dtype, types.Complex):
            for part in range(2):
                number = _hidden(builder, builder.extract_value(value, part), args[1])
                value = builder.insert_value(value, number, part)
        else:
            value = _hidden(builder, value, args[1])
        builder.store(value, made.data)
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


def _hidden(builder: Any, value: Any, zero: Any) -> Any:
    bits = ir.IntType({"half": 16, "float": 32, "double": 64}[str(value.type)])
    if bits.width < zero.type.width:
        zero = builder.trunc(zero, bits)
    return builder.bitcast(builder.xor(builder.bitcast(value, bits), zero), value.type)
