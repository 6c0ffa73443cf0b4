"""Conjugate gradients: a real sparse system solved with one launch, ended by the device.

The matrices are those that pyamg ships as example data. The default, "bar", is the stiffness of an
elastic bar of 4 x 1 x 1 that is clamped at one end: 128 trilinear finite elements, 600 unknowns.
The same force pulls every node down. The method is the one of M. R. Hestenes and E. Stiefel
("Methods of conjugate gradients for solving linear systems", Journal of Research of the National
Bureau of Standards 49, 1952), its preconditioner the matrix's diagonal. The iterations are a
`while_loop` that tests the residual on the device, so that the host neither waits nor knows how
many there will be.

    python examples/conjugate_gradient.py [--matrix bar] [--tolerance 1e-10] [--no-jacobi]

runs it on the GPU where there is one, and else on the CPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyamg
import scipy.sparse
import scipy.sparse.linalg
from numba import cuda

import graphjit as gj
from graphjit import kernels

BLOCK = 256
MATRICES = ("bar", "airfoil", "knot", "local_disc_galerkin_diffusion", "unit_cube")


@cuda.jit
def multiply(data, indices, indptr, x, out):
    """Product of a matrix in CSR and a vector: one thread a row, since the rows are short."""
    row = cuda.grid(1)
    if row < out.size:
        total = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            total += data[k] * x[indices[k]]
        out[row] = total


@cuda.jit
def advance(x, r, p, product, weights, step, next_x, next_r, z):
    """Go along the search direction; z is what the preconditioner makes of the residual."""
    i = cuda.grid(1)
    if i < x.size:
        next_x[i] = x[i] + step * p[i]
        residual = r[i] - step * product[i]
        next_r[i] = residual
        z[i] = weights[i] * residual


@cuda.jit
def turn(z, p, share, next_p):
    """Find the next search direction, conjugate to those before."""
    i = cuda.grid(1)
    if i < z.size:
        next_p[i] = z[i] + share * p[i]


scale = kernels.map(lambda weight, residual: weight * residual)


class State(NamedTuple):
    """What an iteration hands to the next: numbers that kernels found are arrays of one element."""

    x: Any
    residual: Any
    direction: Any
    rz: Any  # the residual times itself preconditioned, and times itself
    rr: Any
    iterations: Any


@gj.graphed(static_argnames="max_iterations")
def solve(
    data: Any,
    indices: Any,
    indptr: Any,
    b: Any,
    weights: Any,
    tolerance: float,
    max_iterations: int,
) -> Any:
    """Solve A x = b, beginning at zero.

    Parameters
    ----------
    data, indices, indptr : Array
        A in CSR, symmetric and positive definite: float64[nonzeros], int32[nonzeros],
        int32[rows + 1].
    b : Array
        The right-hand side, float64[rows].
    weights : Array
        The preconditioner, float64[rows]: one over A's diagonal, or ones for none.
    tolerance : float
        The iterations end when the residual's norm is at most so many times that of b.
    max_iterations : int
        They end after so many in any case.

    Returns
    -------
    x : Array
        float64[rows].
    iterations : Array
        How many it took, int64[].
    residual : Array
        The norm of b - A x, as the iterations update it, float64[].
    """
    grid = -(-b.size // BLOCK)
    bb = kernels.dot(b, b)
    enough = tolerance * tolerance * bb.item()

    def iterate(state: State) -> State:
        x, r, p, rz, _, iterations = state
        product = gj.empty_like(p)
        multiply[grid, BLOCK](data, indices, indptr, p, product)
        step = rz.item() / kernels.dot(p, product).item()
        next_x, next_r, next_p, z = (gj.empty_like(x) for _ in range(4))
        advance[grid, BLOCK](x, r, p, product, weights, step, next_x, next_r, z)
        next_rz, next_rr = kernels.dot(next_r, z), kernels.dot(next_r, next_r)
        turn[grid, BLOCK](z, p, next_rz.item() / rz.item(), next_p)
        return State(next_x, next_r, next_p, next_rz, next_rr, iterations + 1)

    z = scale(weights, b)
    last = gj.while_loop(
        lambda state: state.rr.item() > enough,
        iterate,
        State(gj.zeros_like(b), b, z, kernels.dot(b, z), bb, 0),
        max_iterations=max_iterations,
    )
    return last.x, last.iterations, math.sqrt(last.rr.item())


def example(name: str) -> tuple[Any, Any]:
    """One of pyamg's matrices in CSR, and a right-hand side: the same force on every node.

    The force is the last of up to three translations that come with the matrix; of the bar it is
    its weight.
    """
    problem = pyamg.gallery.load_example(name)
    translations = problem["B"][:, :3].astype(np.float64)
    return problem["A"].tocsr(), -translations[:, -1].copy()


@dataclass(frozen=True)
class Result:
    """What `main` found: residual and error relative to the right-hand side and SciPy's spsolve."""

    x: np.ndarray[Any, np.dtype[np.float64]]
    iterations: int
    residual: float
    error: float
    scipy_iterations: int


def main(
    matrix: str = "bar", tolerance: float = 1e-10, jacobi: bool = True, max_iterations: int = 10_000
) -> Result:
    """Solve the system, print what it took, and compare it with SciPy.

    Parameters
    ----------
    matrix : str
        The name of one of pyamg's examples that is symmetric and positive definite.
    tolerance : float
        The norm of the residual to reach, relative to the right-hand side's.
    jacobi : bool
        Whether the matrix's diagonal is the preconditioner.
    max_iterations : int
        What to end after in any case.

    Returns
    -------
    Result
    """
    a, b = example(matrix)
    weights = 1 / a.diagonal() if jacobi else np.ones_like(b)
    arguments = [gj.array(host) for host in (a.data, a.indices, a.indptr, b, weights)]

    def graphed() -> tuple[Any, int, float]:
        x, iterations, residual = solve(*arguments, tolerance, max_iterations=max_iterations)
        return x.copy_to_host(), int(iterations.item()), float(residual.item())

    def scipy_cg() -> int:
        seen: list[None] = []
        scipy.sparse.linalg.cg(
            a,
            b,
            rtol=tolerance,
            maxiter=max_iterations,
            M=scipy.sparse.diags_array(weights),
            callback=lambda x: seen.append(None),
        )
        return len(seen)

    start = time.perf_counter()
    graphed()  # traces and compiles
    compiled = time.perf_counter() - start
    (x, iterations, residual), seconds = timed(graphed)
    scipy_iterations, scipy_seconds = timed(scipy_cg)
    norm = np.linalg.norm
    direct = scipy.sparse.linalg.spsolve(a.tocsc(), b)
    error = float(norm(x - direct) / norm(direct))
    print(f"backend     {gj.default_device()}")
    print(f"matrix      {matrix}: {len(b)} unknowns, {a.nnz} nonzeros, float64")
    print(f"iterations  {iterations} with one launch; SciPy's {scipy_iterations}")
    print(
        f"residual    {residual / norm(b):.1e} of the right-hand side, {tolerance:.1e} allowed; "
        f"computed anew {norm(b - a @ x) / norm(b):.1e}"
    )
    print(f"error       {error:.1e} of the direct solution")
    print(f"time        {seconds / iterations * 1e6:.1f} us an iteration, {seconds * 1e3:.2f} ms")
    each = scipy_seconds / scipy_iterations
    print(f"SciPy       {each * 1e6:.1f} us an iteration, {scipy_seconds * 1e3:.2f} ms")
    print(f"compiled    in {compiled:.2f} s")
    return Result(x, iterations, float(residual / norm(b)), error, scipy_iterations)


def timed(function: Callable[[], Any], rounds: int = 7) -> tuple[Any, float]:
    """What a function returns, and the median of the seconds it takes."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return result, statistics.median(seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--matrix", choices=MATRICES, default="bar")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument("--no-jacobi", dest="jacobi", action="store_false")
    options = parser.parse_args()
    main(options.matrix, options.tolerance, options.jacobi)
