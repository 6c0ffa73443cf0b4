"""Copies and fills as Numba kernels, so that a graph holds nothing but launches."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from graphjit._layout import Layout
from graphjit._nodes import Constant, Fill, Operand, View, constant
from graphjit._scalars import element
from graphjit.kernel import frontend, numba_types
from graphjit.kernel.generated import GeneratedLaunch, generated

_THREADS = 256
_BLOCK = (_THREADS, 1, 1)
_MAX_BLOCKS = 4096
# Elements are moved as these; other sizes go byte by byte.
_UNITS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def copy_launch(source: View, target: View) -> GeneratedLaunch:
    """The launch of ``target[...] = source``, for views that don't overlap unless they are equal.

    Parameters
    ----------
    source, target : View
        Of one shape and dtype.

    Returns
    -------
    GeneratedLaunch
    """
    layouts = _merged([_as_units(target.layout), _as_units(source.layout)])
    kernel = _kernel("copy", layouts[0].ndim)
    ir = frontend.kernel_ir(kernel, tuple(numba_types.array_type(layout) for layout in layouts))
    views = [
        View(view.buffer, view.offset, layout)
        for view, layout in zip((target, source), layouts, strict=True)
    ]
    return GeneratedLaunch(ir, tuple(views), _grid(layouts[0].size), _BLOCK)


def fill_launch(node: Fill) -> GeneratedLaunch:
    """The launch of ``target[...] = value``."""
    target = node.target.view
    (layout,) = _merged([target.layout])
    array = numba_types.array_type(layout)
    ir = frontend.kernel_ir(_kernel("fill", layout.ndim), (array, array.dtype))
    value: Operand = node.value
    if isinstance(node.value, Constant):
        value = constant(element(node.value.value, layout.dtype)[()])
    view = View(target.buffer, target.offset, layout)
    return GeneratedLaunch(ir, (view, value), _grid(layout.size), _BLOCK)


def _grid(size: int) -> tuple[int, int, int]:
    return max(1, min(_MAX_BLOCKS, -(-size // _THREADS))), 1, 1


def _as_units(layout: Layout) -> Layout:
    size = layout.dtype.itemsize
    if size in _UNITS and all(s % size == 0 for s in layout.strides):
        return Layout(layout.shape, layout.strides, np.dtype(_UNITS[size]))
    return Layout((*layout.shape, size), (*layout.strides, 1), np.dtype("u1"))


def _merged(layouts: list[Layout]) -> list[Layout]:
    """Layouts of one shape with the axes merged that are one run in all of them; at least 1-d."""
    shape = [1]
    strides = [[0] for _ in layouts]
    for axis, length in enumerate(layouts[0].shape):
        if length == 1:
            continue
        steps = [layout.strides[axis] for layout in layouts]
        if shape[-1] == 1 or all(
            outer[-1] == length * step for outer, step in zip(strides, steps, strict=True)
        ):
            shape[-1] *= length
            for outer, step in zip(strides, steps, strict=True):
                outer[-1] = step
        else:
            shape.append(length)
            for outer, step in zip(strides, steps, strict=True):
                outer.append(step)
    if shape == [1]:
        strides = [[layout.dtype.itemsize] for layout in layouts]
    return [
        Layout(tuple(shape), tuple(steps), layout.dtype)
        for layout, steps in zip(layouts, strides, strict=True)
    ]


@functools.cache
def _kernel(what: str, ndim: int) -> Any:
    """A kernel over arrays of `ndim` axes, one thread an element, the last axis fastest."""
    source = "src" if what == "copy" else "value"
    indices = ", ".join(f"i{axis}" for axis in range(ndim))
    lines = [
        f"def {what}(dst, {source}):",
        "    i = cuda.grid(1)",
        "    while i < dst.size:",
        "        rest = i",
    ]
    for axis in reversed(range(1, ndim)):
        lines += [
            f"        i{axis} = rest % dst.shape[{axis}]",
            f"        rest //= dst.shape[{axis}]",
        ]
    value = f"src[{indices}]" if what == "copy" else "value"
    lines += [
        "        i0 = rest",
        f"        dst[{indices}] = {value}",
        "        i += cuda.gridsize(1)",
    ]
    return generated(what, "\n".join(lines) + "\n", {})
