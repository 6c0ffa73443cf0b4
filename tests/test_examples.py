"""The example programs, small, against independent NumPy."""

import numpy as np
import pytest
from PIL import Image

from examples import gray_scott, heat


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


def reacted(u, v, steps):
    """The five-point scheme on a torus, in float64."""
    u, v = u.astype(np.float64), v.astype(np.float64)
    feed, kill = float(gray_scott.FEED), float(gray_scott.KILL)
    for _ in range(steps):
        around = [
            sum(np.roll(w, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * w
            for w in (u, v)
        ]
        eaten = u * v * v
        u = u + 0.2 * around[0] - eaten + feed * (1 - u)
        v = v + 0.1 * around[1] + eaten - (feed + kill) * v
    return v


def test_gray_scott_agrees_with_numpy(tmp_path, capsys):
    out = tmp_path / "made" / "gray_scott.png"
    pictures = gray_scott.main(steps=397, size=37, out=out)
    assert pictures.shape == (8, 37, 37) and "400 on 37 x 37 cells" in capsys.readouterr().out
    u, v = gray_scott.seeded(37)
    for index in (0, 3, 7):
        expected = reacted(u, v, 50 * (index + 1))
        assert expected.std() > 0.03  # there is something to see
        np.testing.assert_allclose(pictures[index], expected, atol=2e-5)
    with Image.open(out) as picture:
        assert picture.size[0] > 1000
