"""The example programs, small, against independent NumPy."""

import numpy as np
import pytest
from PIL import Image

from examples import heat


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("heat") / "made" / "heat.png"
    return heat.main(steps=40, out=out), out


def diffused(terrain, diffusivity, dt, steps):
    """The five-point scheme on an array padded by its own borders, which is no flux."""
    z = terrain.height
    for _ in range(steps):
        p = np.pad(z, 1, mode="edge")
        across = (p[1:-1, 2:] - 2 * z + p[1:-1, :-2]) / terrain.dx**2
        along = (p[2:, 1:-1] - 2 * z + p[:-2, 1:-1]) / terrain.dy**2
        z = z + diffusivity * dt * (across + along)
    return z


def test_heat_agrees_with_numpy(run):
    result, _ = run
    expected = diffused(result.before, heat.DIFFUSIVITY, result.before.time_step, 40)
    np.testing.assert_allclose(result.after.height, expected, rtol=1e-12)
    assert abs(result.after.height - result.before.height).max() > 1  # metres: it did something


def test_heat_conserves_volume_and_bounds(run):
    result, _ = run
    assert result.drift < 1e-13
    # The maximum principle of a stable explicit scheme.
    assert result.after.height.max() <= result.before.height.max()
    assert result.after.height.min() >= result.before.height.min()


def test_heat_keeps_its_input(run):
    result, _ = run
    np.testing.assert_array_equal(result.before.height, heat.Terrain.jacksboro().height)


def test_heat_draws_a_picture(run):
    _, out = run
    with Image.open(out) as picture:
        assert picture.format == "PNG" and picture.size[0] > 1000
        assert len(np.unique(np.asarray(picture.convert("L")))) > 100


def test_heat_reports_what_it_did(tmp_path, capsys):
    heat.main(steps=1, out=tmp_path / "heat.png")
    printed = capsys.readouterr().out
    for label in ("backend", "grid", "steps     10 of", "time", "speed-up", "volume", "picture"):
        assert label in printed
