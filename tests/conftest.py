"""Fixtures: a backend to run on, with CUDA skipped where there is no device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import graphjit as gj


def _has_cuda() -> bool:
    return bool(gj.devices("cuda"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _has_cuda():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each backend in turn, as the default one."""
    with gj.use_backend(request.param):
        yield request.param


@pytest.fixture
def cpu() -> Iterator[None]:
    """The CPU backend as the default one."""
    with gj.use_backend("cpu"):
        yield
