"""Runs a case on any backend and compares everything it left in memory with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .case import Args, Case, Path

# Runs a kernel: (kernel, launch configuration, arguments) -> one result for each argument, that is
# the argument's memory after the launch as NumPy data, nested like the argument if it is a tuple.
# What it returns for scalars is ignored.
Launch = Callable[[Any, tuple[Any, ...], Args], Sequence[Any]]


def check_case(case: Case, seed: int, launch: Launch) -> None:
    """Run a case and compare every argument with what NumPy expects of it.

    Parameters
    ----------
    case : Case
        The case.
    seed : int
        Seed of its arguments.
    launch : callable
        ``launch(kernel, config, args)``; may work in place, and returns the arguments after the
        launch.

    Raises
    ------
    AssertionError
        If an argument isn't as the reference says, or one that must not change did.
    """
    args = case.make(np.random.default_rng(seed))
    before = copy_arguments(args)
    expected = dict(case.reference(copy_arguments(args)))
    owners = [(leaf, _owner(leaf), _owner(leaf).copy()) for _, leaf in _memory(args)]
    results = launch(case.kernel, case.launch(args), args)
    got = dict(_memory(tuple(results)))
    for path, old in _memory(before):
        assert path in got, f"{case.name}: argument {path} is missing from the results"
        if path in expected:
            _compare(case, path, got[path], expected.pop(path), old, case.rtol, case.atol)
        else:
            _compare(case, path, got[path], old, old, 0.0, 0.0)
    assert not expected, f"{case.name}: the reference names no array argument: {list(expected)}"
    for (leaf, owner, owned), (path, old) in zip(owners, _memory(before), strict=True):
        # With the argument's own elements put back, what is left of a change lies between them.
        if owner is not leaf and leaf.flags.writeable:
            leaf[...] = old
            assert np.array_equal(owner, owned), f"{case.name}: wrote beside argument {path}"


def copy_arguments(args: Args) -> Args:
    """Deep copies of the argument values; strides are not kept."""
    return tuple(_copy(value) for value in args)


def _copy(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.void)):
        return value.copy()
    if isinstance(value, tuple):
        parts = (_copy(part) for part in value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _memory(values: Args, prefix: tuple[int, ...] = ()) -> Iterator[tuple[Path, Any]]:
    """Every array and record of an argument list, with its path."""
    for index, value in enumerate(values):
        path = (*prefix, index)
        if isinstance(value, (tuple, list)):
            yield from _memory(tuple(value), path)
        elif isinstance(value, (np.ndarray, np.void)):
            yield (index if len(path) == 1 else path), value


def _owner(leaf: Any) -> Any:
    owner = leaf
    while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner


def _compare(
    case: Case, path: Path, got: Any, want: Any, like: Any, rtol: float, atol: float
) -> None:
    got, want, like = np.asarray(got), np.asarray(want), np.asarray(like)
    label = f"{case.name}: argument {path}"
    assert got.dtype == like.dtype, f"{label} has become {got.dtype}, was {like.dtype}"
    assert got.shape == like.shape == want.shape, (
        f"{label} has shape {got.shape}, the reference {want.shape}, it was {like.shape}"
    )
    if like.dtype.names is not None:
        for name in like.dtype.names:
            _compare(case, path, got[name], want[name], like[name], rtol, atol)
    elif rtol == 0 and atol == 0:
        np.testing.assert_array_equal(got, want.astype(like.dtype), err_msg=label)
    else:
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=label)
