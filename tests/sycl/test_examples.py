"""The examples on a SYCL device, against the references that they have on the others."""

from __future__ import annotations

import numpy as np
import pytest

import graphjit as gj
from examples import adaptive_ode, conjugate_gradient, gray_scott, heat

from ..test_examples import diffused, reacted

pytestmark = pytest.mark.sycl


@pytest.fixture(autouse=True)
def sycl():
    """The SYCL backend as the default one."""
    with gj.use_backend("sycl"):
        yield


def test_heat(tmp_path):
    result = heat.main(steps=20, out=tmp_path / "heat.png")
    expected = diffused(result.before, heat.DIFFUSIVITY, result.before.time_step, 20)
    np.testing.assert_allclose(result.after.height, expected, rtol=1e-12)


def test_gray_scott(tmp_path):
    pictures = gray_scott.main(steps=40, size=37, out=tmp_path / "gray_scott.png")
    u, v = gray_scott.seeded(37)
    np.testing.assert_allclose(pictures[7], reacted(u, v, 40), atol=2e-5)


def test_conjugate_gradient():
    result = conjugate_gradient.main("bar", tolerance=1e-10)
    a, b = conjugate_gradient.example("bar")
    assert np.linalg.norm(b - a @ result.x) < 2e-10 * np.linalg.norm(b)
    assert abs(result.iterations - result.scipy_iterations) <= 2


def test_orbits(tmp_path):
    result = adaptive_ode.main(satellites=1, tolerance=1e-7, out=tmp_path / "orbits.png")
    assert result.error < 1e-3 and result.rejected > 0
    assert result.times[-1] == pytest.approx(adaptive_ode.PERIOD, 1e-15)
