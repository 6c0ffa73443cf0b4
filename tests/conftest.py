"""Fixtures: a backend to run on, with CUDA skipped where there is no device."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import graphjit as gj


def _no_cuda() -> str:
    return "" if gj.devices("cuda") else "no CUDA device"


def _no_sycl() -> str:
    """Why there is no SYCL here, which is no reason where it is required."""
    try:
        with gj.use_backend("sycl"):
            gj.zeros(1)
    except gj.DeviceError as error:
        if os.environ.get("GRAPHJIT_REQUIRE_SYCL"):
            raise
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for mark, missing in (("gpu", _no_cuda), ("sycl", _no_sycl)):
        marked = [item for item in items if item.get_closest_marker(mark)]
        reason = missing() if marked else ""
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(
    params=[
        "cpu",
        pytest.param("cuda", marks=pytest.mark.gpu),
        pytest.param("sycl", marks=pytest.mark.sycl),
    ]
)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each backend in turn, as the default one."""
    with gj.use_backend(request.param):
        yield request.param


@pytest.fixture
def cpu() -> Iterator[None]:
    """The CPU backend as the default one."""
    with gj.use_backend("cpu"):
        yield
