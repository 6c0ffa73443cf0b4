"""Native copies and fills against NumPy's assignment."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphjit._layout import Layout
from graphjit.backends.cpu.memory_kernels import copy_step, fill_step
from graphjit.backends.cpu.pool import Pool
from graphjit.backends.cpu.program import Program
from graphjit.kernel.packing import Address

DTYPES = ["i1", "i2", "f4", "f8", "c16", "V3", "V7", "V12", "S20"]


def layout(array):
    return Layout(array.shape, array.strides, array.dtype)


def replay(step, *slots, pool=None):
    program = Program([step], max(1, len(slots)), pool)
    struct.pack_into(f"={len(slots)}Q", program.slot_buffer, 0, *slots)
    program.run()


def copy(target, source, pool=None):
    step = copy_step(Address(0), layout(target), Address(1), layout(source))
    replay(step, target.ctypes.data, source.ctypes.data, pool=pool)


def same_place(array, base, other):
    """The view of `other` that `array` is of `base`."""
    offset = array.ctypes.data - base.ctypes.data
    return np.ndarray(array.shape, array.dtype, other, offset, array.strides)


@st.composite
def views(draw, shape, dtype, broadcast):
    """Random bytes and a view of them: permuted axes, steps of either sign, zero strides."""
    ndim = len(shape)
    order = draw(st.permutations(range(ndim)))
    steps = [draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in shape]
    flat = [draw(st.booleans()) and broadcast for _ in shape]
    full = [1 if flat[k] else max(1, shape[k]) * abs(steps[k]) + draw(st.integers(0, 1))
            for k in range(ndim)]  # fmt: skip
    seed = draw(st.integers(0, 2**32 - 1))
    count = int(np.prod(full, dtype=int)) * dtype.itemsize
    # One byte of shift makes some views unaligned.
    shift = draw(st.integers(0, 1))
    base = np.random.default_rng(seed).integers(0, 256, count + 1, dtype=np.uint8)
    array = np.ndarray([full[k] for k in order], dtype, base, shift)
    array = array.transpose(np.argsort(order)) if ndim else array
    key = [slice(None, None, 1 if flat[k] else steps[k]) for k in range(ndim)]
    array = array[(*key, ...)][(*(slice(0, n) for n in shape), ...)]
    return base, np.broadcast_to(array, shape) if any(flat) else array


@st.composite
def pairs(draw):
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 17]), max_size=5)))
    if np.prod(shape, dtype=int) > 3000:
        shape = shape[:2]
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    return draw(views(shape, dtype, False)), draw(views(shape, dtype, True))


@settings(max_examples=300, deadline=None)
@given(pairs())
def test_copy_is_numpys_assignment(pair):
    (base, target), (_, source) = pair
    expected = base.copy()
    same_place(target, base, expected)[...] = source
    copy(target, source)
    assert (base == expected).all()


@settings(max_examples=200, deadline=None)
@given(pairs())
def test_fill_is_numpys_assignment(pair):
    base, target = pair[0]
    if target.dtype.itemsize > 16:
        return
    expected = base.copy()
    value = np.arange(1, target.dtype.itemsize + 1, dtype=np.uint8)
    same_place(target, base, expected)[...] = value.view(target.dtype)[0]
    replay(fill_step(Address(0), layout(target), value.tobytes()), target.ctypes.data)
    assert (base == expected).all()


@st.composite
def overlaps(draw):
    """Two views of 400 ints that overlap as often as not, each without overlap in itself."""
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 6)) for _ in range(ndim))
    strides = []
    for _ in range(2):
        step, steps = 4 * draw(st.integers(1, 2)), [0] * ndim
        for k in draw(st.permutations(range(ndim))):
            steps[k] = step * draw(st.sampled_from([1, 1, -1]))
            step *= shape[k]
        strides.append(tuple(steps))
    if draw(st.booleans()):
        strides[1] = strides[0]
    offsets = []
    for steps in strides:
        low = sum((n - 1) * s for n, s in zip(shape, steps, strict=True) if s < 0)
        offsets.append(-low + 4 * draw(st.integers(0, 12)))
    return shape, strides, offsets


@settings(max_examples=500, deadline=None)
@given(overlaps())
def test_copy_between_overlapping_views(case):
    shape, strides, offsets = case
    base = np.arange(600, dtype="i4")
    expected = base.copy()
    target, source = (
        np.ndarray(shape, "i4", base, offset, steps)
        for offset, steps in zip(offsets, strides, strict=True)
    )
    # NumPy itself gets a few 1-d cases of equal addresses and different strides wrong.
    same_place(target, base, expected)[...] = source.copy()
    copy(target, source)
    assert (base == expected).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_large_copies_use_the_pool(threads):
    pool = Pool(threads)
    base = np.random.default_rng(0).random((700, 1003))
    cube = base[:, :1000].reshape(70, 10, 100, 10)
    for source in (
        base,
        base.T,
        base[::-1, ::2],
        base[:640, :64].T[::-1],
        cube.transpose(2, 0, 3, 1),
        cube.transpose(3, 2, 0, 1)[::-1, :, ::-1],
        np.broadcast_to(base[:, :1], base.shape),
    ):
        target = np.zeros(source.shape)
        copy(target, source, pool)
        assert (target == source).all()
    for shift in (1, -1, 1003):
        flat = base.ravel().copy()
        expected = flat.copy()
        a, b = (slice(shift, None), slice(None, -shift)) if shift > 0 else (
            slice(None, shift), slice(-shift, None))  # fmt: skip
        expected[a] = expected[b].copy()
        copy(flat[a], flat[b], pool)
        assert (flat == expected).all()
    pool.close()


def test_large_overlapping_transpose_goes_through_a_temporary():
    base = np.arange(300 * 300, dtype="f8").reshape(300, 300)
    expected = base.T.copy()
    copy(base, base.T)
    assert (base == expected).all()


def test_addresses_take_offsets():
    data = np.arange(20, dtype="i8")
    step = copy_step(Address(0, 8 * 10), layout(data[:5]), Address(1, 8), layout(data[:5]))
    replay(step, data.ctypes.data, data.ctypes.data)
    assert data.tolist() == [*range(10), 1, 2, 3, 4, 5, *range(15, 20)]


def test_fill_value_from_slots():
    reals = np.zeros(1000, "f4")
    pattern = int.from_bytes(struct.pack("=f", 2.5), "little")
    replay(fill_step(Address(0), layout(reals), (1,)), reals.ctypes.data, pattern)
    assert (reals == 2.5).all()
    complexes = np.zeros((30, 40), "c16")[:, ::2]
    parts = [struct.unpack("=Q", struct.pack("=d", v))[0] for v in (1.5, -2.0)]
    replay(fill_step(Address(0), layout(complexes), (1, 2)), complexes.ctypes.data, *parts)
    assert (complexes == 1.5 - 2j).all()


def test_what_cannot_be_copied_or_filled():
    row = np.zeros(4)
    with pytest.raises(ValueError, match="broadcast it"):
        copy_step(Address(0), layout(row), Address(1), layout(row[:2]))
    with pytest.raises(ValueError, match="unconverted"):
        copy_step(Address(0), layout(row), Address(1), layout(row.astype("f4")))
    with pytest.raises(ValueError, match="broadcast view"):
        copy_step(Address(0), layout(np.broadcast_to(row, (3, 4))), Address(1),
                  layout(np.zeros((3, 4))))  # fmt: skip
    nine = np.zeros((4,) * 9, "i1")[(slice(None, None, 2),) * 9]
    with pytest.raises(ValueError, match="8 separate axes"):
        copy_step(Address(0), layout(nine), Address(1), layout(nine))
    with pytest.raises(ValueError, match="16 bytes"):
        fill_step(Address(0), layout(np.zeros(3, "S20")), bytes(20))
    with pytest.raises(ValueError, match="fill float64 from 4"):
        fill_step(Address(0), layout(row), bytes(4))
