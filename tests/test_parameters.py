"""The order of a kernel's parameters on a GPU: which comes where, and IR that has it so."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

from graphjit.kernel import frontend
from graphjit.kernel.parameters import indirect, moving_first, reordered, waiting

FLAT = types.float32[::1]
ARGUMENTS = FLAT, types.int64, types.Tuple((types.float64[:, :], types.float64)), types.complex64


@cuda.jit
def several(x, k, pair, z):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = k + pair[0][i, 0] + pair[1] + z.real


def test_pointers_then_numbers_then_the_rest():
    kernel = frontend.kernel_ir(several, ARGUMENTS)
    order = moving_first(kernel)
    count = sum(leaf.count for leaf in kernel.leaves)
    assert sorted(order) == list(range(count))
    # x is 7 parameters, k one, pair[0] nine, pair[1] one, z two.
    assert order[:6] == (4, 7 + 1 + 4, 7, 17, 18, 19)
    assert list(order[6:]) == sorted(order[6:])


@pytest.mark.parametrize("seed", range(5))
def test_ir_in_another_order(seed):
    library, entry = frontend._lower(several, ARGUMENTS)
    (text,) = [text for text in library.llvm_strs if f'define void @"{entry}"(' in text]
    kernel = frontend.kernel_ir(several, ARGUMENTS)
    order = tuple(np.random.default_rng(seed).permutation(sum(x.count for x in kernel.leaves)))
    made = reordered(text, entry, order)
    names = [_names(t, entry) for t in (text, made)]
    assert names[1] == [names[0][index] for index in order]
    back = tuple(int(index) for index in np.argsort(order))
    assert reordered(made, entry, back) == text
    # What LLVM reads: the same body, and arguments of the same types by name.
    before, after = (llvm.parse_assembly(t).get_function(entry) for t in (text, made))
    types_of = [{a.name: str(a.type) for a in f.arguments} for f in (before, after)]
    assert types_of[0] == types_of[1] and len(types_of[0]) == len(order)
    bodies = [[str(i) for block in f.blocks for i in block.instructions] for f in (before, after)]
    assert bodies[0] == bodies[1] and bodies[0]


def _names(text, entry):
    head = re.search(rf'define void @"{re.escape(entry)}"\(([^()]*)\)', text)[1]
    return re.findall(r'%"([^"]*)"', head)


def test_ir_of_something_else():
    text = 'define void @"k"(i8* %"x", {i32, [2 x i8]} %"y", <2 x i32> %"z")\n{\n}\n'
    assert reordered(text, "k", (2, 0, 1)) == (
        'define void @"k"(<2 x i32> %"z", i8* %"x", {i32, [2 x i8]} %"y")\n{\n}\n'
    )
    assert reordered(text, "other", (0, 1, 2)) is None
    assert reordered(text, "k", (0, 1)) is None
    assert reordered("", "k", ()) is None


def test_parameters_that_a_kernel_loads():
    library, entry = frontend._lower(several, ARGUMENTS)
    (text,) = [text for text in library.llvm_strs if f'define void @"{entry}"(' in text]
    kernel = frontend.kernel_ir(several, ARGUMENTS)
    pointers = [leaf.data for leaf in kernel.leaves if leaf.data is not None]
    numbers = [leaf.first for leaf in kernel.leaves if leaf.data is None]
    made = indirect(text, entry, frozenset([*pointers, *numbers]))
    module = llvm.parse_assembly(made)
    module.verify()
    before = [a.name for a in llvm.parse_assembly(text).get_function(entry).arguments]
    after = [(a.name, str(a.type)) for a in module.get_function(entry).arguments]
    expected = []
    for index, name in enumerate(before):
        if index in pointers:
            expected += [f"{name}.at", f"{name}.add"]
        else:
            expected.append(f"{name}.at" if index in numbers else name)
    assert [name for name, _ in after] == expected
    assert all(type_ == "i64" for name, type_ in after if name.endswith((".at", ".add")))
    # The kernel's own instructions are as they were.
    bodies = [
        [
            str(i)
            for block in llvm.parse_assembly(t).get_function(entry).blocks
            for i in block.instructions
        ]
        for t in (text, made)
    ]
    assert bodies[1][-len(bodies[0]) :] == bodies[0]
    assert indirect(text, "another", frozenset([0])) is None


def test_a_kernel_that_waits():
    library, entry = frontend._lower(several, ARGUMENTS)
    (text,) = [text for text in library.llvm_strs if f'define void @"{entry}"(' in text]
    made = waiting(text, entry)
    block = next(iter(llvm.parse_assembly(made).get_function(entry).blocks))
    assert "griddepcontrol.wait" in str(next(iter(block.instructions)))
    assert waiting(text, "another") is None
