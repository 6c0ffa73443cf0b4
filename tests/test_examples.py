"""The example programs, small, against independent NumPy and SciPy."""

import math

import numpy as np
import pytest
from PIL import Image

import graphjit as gj
from examples import (
    adaptive_ode,
    conjugate_gradient,
    gray_scott,
    heat,
    lattice_boltzmann,
    shallow_water,
)


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


@pytest.mark.parametrize("jacobi", [True, False])
def test_conjugate_gradient_agrees_with_scipy(jacobi, capsys):
    result = conjugate_gradient.main("bar", tolerance=1e-10, jacobi=jacobi)
    a, b = conjugate_gradient.example("bar")
    assert abs(a - a.T).max() == 0 and np.linalg.eigvalsh(a.toarray())[0] > 0
    assert np.linalg.norm(b - a @ result.x) < 2e-10 * np.linalg.norm(b)
    assert result.error < 1e-11 and result.residual <= 1e-10
    assert abs(result.iterations - result.scipy_iterations) <= 2
    assert f"{result.iterations} with one launch" in capsys.readouterr().out


@pytest.mark.parametrize("matrix", conjugate_gradient.MATRICES)
def test_conjugate_gradient_ends_by_residual_or_count(matrix):
    a, b = conjugate_gradient.example(matrix)
    arguments = [gj.array(x) for x in (a.data, a.indices, a.indptr, b, 1 / a.diagonal())]
    counts = []
    for tolerance, limit in ((1e-4, 1000), (1e-8, 1000), (1e-8, 3), (1.0, 1000)):
        x, iterations, residual = conjugate_gradient.solve(
            *arguments, tolerance, max_iterations=limit
        )
        found = np.linalg.norm(b - a @ x.copy_to_host())
        assert residual.item() == pytest.approx(found, rel=1e-4)
        assert (found <= 1.001 * tolerance * np.linalg.norm(b)) == (limit == 1000)
        counts.append(iterations.item())
    assert 3 < counts[0] < counts[1] < 1000 and counts[2:] == [3, 0]


def test_conjugate_gradient_of_nothing():
    a, b = conjugate_gradient.example("knot")
    arguments = [gj.array(x) for x in (a.data, a.indices, a.indptr, 0 * b, 1 / a.diagonal())]
    x, iterations, residual = conjugate_gradient.solve(*arguments, 1e-10, max_iterations=10)
    assert not x.copy_to_host().any() and iterations.item() == 0 and residual.item() == 0


@pytest.fixture(scope="module")
def orbits(tmp_path_factory):
    out = tmp_path_factory.mktemp("orbits") / "made" / "orbits.png"
    return adaptive_ode.main(satellites=3, out=out), out


def test_orbits_agree_with_scipy(orbits):
    result, _ = orbits
    assert result.error < 1e-6 and result.gap < 1e-6
    assert result.times[0] == 0 and result.times[-1] == pytest.approx(adaptive_ode.PERIOD, 1e-15)
    steps = np.diff(result.times)
    assert steps.min() > 0 and steps.max() > 100 * steps.min()  # it adapts
    assert result.rejected > 0


def test_orbits_keep_jacobis_integral(orbits):
    x, y, u, v = orbits[0].path.swapaxes(0, 1)
    moon = adaptive_ode.MOON
    earth_distance, moon_distance = np.hypot(x + moon, y), np.hypot(x - 1 + moon, y)
    potential = x**2 + y**2 + 2 * (1 - moon) / earth_distance + 2 * moon / moon_distance
    integral = potential - u**2 - v**2
    np.testing.assert_allclose(integral - integral[0], 0, atol=1e-5)


def test_orbits_are_drawn(orbits):
    with Image.open(orbits[1]) as picture:
        assert picture.size[0] > 1000


def test_orbits_do_what_eager_launches_do():
    state = gj.array(adaptive_ode.at_start(2, 1e-4))
    for end, attempts in ((0.5, 200), (17.0, 20), (0.0, 5)):
        found, expected = (
            [np.asarray(getattr(x, "copy_to_host", lambda x=x: x)()) for x in results]
            for results in (
                fly(state, end, 1e-9, attempts=attempts)
                for fly in (adaptive_ode.fly, adaptive_ode.fly.__wrapped__)
            )
        )
        accepted, rejected = found[2], found[3]
        assert accepted + rejected <= attempts and (found[1] == end) == (attempts != 20)
        for left, right in zip(found[:4], expected[:4], strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-9)
        np.testing.assert_allclose(found[5][:accepted], expected[5][:accepted], rtol=1e-9)


def test_a_tighter_tolerance_takes_more_steps_and_errs_less(tmp_path):
    coarse, fine = (
        adaptive_ode.main(satellites=1, tolerance=tolerance, out=tmp_path / "orbits.png")
        for tolerance in (1e-7, 1e-10)
    )
    # Of order 5: a thousandth of the error takes about 4 times as many steps.
    assert 3 < len(fine.times) / len(coarse.times) < 5
    assert fine.error < coarse.error / 100


def splashed(h, hu, hv, dt):
    """One step of Rusanov's scheme in a basin whose walls mirror the water."""
    g, cell = shallow_water.GRAVITY, shallow_water.CELL

    def flows(q, axis):
        along = q[1 + axis]
        physical = np.stack([along, *(q[k] * along / q[0] for k in (1, 2))])
        physical[1 + axis] += g * q[0] ** 2 / 2
        speed = abs(along / q[0]) + np.sqrt(g * q[0])
        there, here = (np.roll(w, -1, -1 - (axis == 1)) for w in (q, physical))
        fastest = np.maximum(speed, np.roll(speed, -1, -1 - (axis == 1)))
        return (physical + here - fastest * (there - q)) / 2

    q = np.stack([h, hu, hv])
    x, y = flows(q, 0), flows(q, 1)
    out = x - np.roll(x, 1, 2) + y - np.roll(y, 1, 1)
    turned = np.stack([0 * h, shallow_water.CORIOLIS * hv, -shallow_water.CORIOLIS * hu])
    dragged = np.stack([0 * h, hu, hv]) * shallow_water.DRAG
    new = (q - dt / cell * out + dt * (turned - dragged))[:, 1:-1, 1:-1]
    new = np.pad(new, ((0, 0), (1, 1), (1, 1)), mode="edge")
    new[1, :, [0, -1]] *= -1
    new[2, [0, -1]] *= -1
    new[1:, :: new.shape[1] - 1, :: new.shape[2] - 1] = 0  # corners, which no face touches
    return new


def test_shallow_water_agrees_with_numpy():
    random = np.random.default_rng(0)
    h = shallow_water.at_start(23, 38)[0]
    state = h, *(np.pad(random.uniform(-9, 9, (23, 38)), 1, mode="edge") for _ in range(2))
    dt = shallow_water.time_step()
    found = gj.graphed(shallow_water.step)(*state, np.zeros_like(h), dt)
    found = np.stack([each.copy_to_host() for each in found])
    found[1:, :: found.shape[1] - 1, :: found.shape[2] - 1] = 0
    expected = splashed(*state, dt)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-11)
    assert abs(expected[0] - h).max() > 0.01  # metres: it did something


def test_shallow_water_keeps_its_water_and_rests_when_flat(tmp_path, capsys):
    out = tmp_path / "made" / "water.png"
    depths = shallow_water.main(steps=158, size=31, out=out)
    assert depths.shape == (5, 31, 31) and "160 of" in capsys.readouterr().out
    amounts = [math.fsum(h.ravel()) for h in depths]
    np.testing.assert_allclose(amounts, amounts[0], rtol=1e-14)
    assert np.ptp(depths[0]) > 4 > 2 > np.ptp(depths[-1]) > 0.01
    with Image.open(out) as picture:
        assert picture.size[0] > 1000
    flat = np.full((9, 12), 50.0)
    result = shallow_water.run(flat, 0 * flat, 0 * flat, 0 * flat, 1.0, steps=3)
    for mine, still in zip(result, (flat, 0 * flat, 0 * flat), strict=True):
        np.testing.assert_array_equal(mine.copy_to_host(), still)


def collided_and_streamed(f, push):
    """One step of D2Q9 with the walls half a cell outside, in float64."""
    c = np.array([lattice_boltzmann.CX, lattice_boltzmann.CY], np.float64)
    w = np.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4])
    omega = 1 / lattice_boltzmann.RELAXATION
    density = f.sum(0)
    u, v = np.tensordot(c, f, (1, 0)) / density
    u = u + push / 2 / density
    cu = np.tensordot(c.T, np.stack([u, v]), (1, 0))
    speeds = u * u + v * v
    balance = np.einsum("q,ij,qij->qij", w, density, 1 + 3 * cu + 4.5 * cu**2 - 1.5 * speeds)
    along = c[0][:, None, None]
    forced = (1 - omega / 2) * w[:, None, None] * (3 * (along - u) + 9 * cu * along) * push
    f = f - omega * (f - balance) + forced
    moved = np.stack([np.roll(f[q], (int(c[1, q]), int(c[0, q])), (0, 1)) for q in range(9)])
    for q in range(9):
        back = lattice_boltzmann.OPPOSITE[q]
        if c[1, q]:
            wall = 0 if c[1, q] > 0 else -1
            moved[q, wall] = f[back, wall]
    return moved, density, u, v


def test_lattice_boltzmann_agrees_with_numpy():
    noise = np.random.default_rng(1).uniform(0.9, 1.1, (9, 19, 37))
    f = (lattice_boltzmann.at_rest(19, 37) * noise).astype(np.float32)
    expected = f.astype(np.float64)
    step = gj.graphed(lattice_boltzmann.step)
    for _ in range(3):
        f, *fields = step(f, np.float32(1e-3))
        expected, *others = collided_and_streamed(expected, float(np.float32(1e-3)))
    for mine, other in zip((f, *fields), (expected, *others), strict=True):
        np.testing.assert_allclose(mine.copy_to_host(), other, atol=2e-6)


def test_lattice_boltzmann_ends_in_poiseuilles_parabola(tmp_path, capsys):
    out = tmp_path / "made" / "flow.png"
    u = lattice_boltzmann.main(steps=6000, size=16, out=out)
    push = float(lattice_boltzmann.push_for(16))
    steady = lattice_boltzmann.profile(16, math.inf, push)
    # Zero half a cell outside the outermost rows, and a twentieth of a cell a step in the middle.
    y = np.arange(16) + 0.5
    np.testing.assert_allclose(steady, 0.05 * y * (16 - y) / 64, rtol=1e-6)
    np.testing.assert_allclose(u, np.broadcast_to(steady[:, None], u.shape), atol=2e-4 * 0.05)
    assert "6000 on 16 x 16 cells" in capsys.readouterr().out
    with Image.open(out) as picture:
        assert picture.size[0] > 800


def test_lattice_boltzmann_grows_as_it_should(tmp_path):
    u = lattice_boltzmann.main(steps=500, size=32, out=tmp_path / "flow.png")
    exact = lattice_boltzmann.profile(32, 499, float(lattice_boltzmann.push_for(32)))
    assert 0.2 < exact.max() / 0.05 < 0.9  # on its way
    np.testing.assert_allclose(u[:, 5], exact, atol=5e-4 * 0.05)


@pytest.mark.parametrize("example", [shallow_water, lattice_boltzmann])
def test_steps_do_what_eager_launches_do(example):
    step, arguments, nbytes = example.benchmark_step(33)
    assert nbytes > 33 * 33 * 8
    arguments = [gj.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    for mine, plain in zip(gj.graphed(step)(*arguments), step(*arguments), strict=True):
        np.testing.assert_array_equal(mine.copy_to_host(), plain.copy_to_host())
