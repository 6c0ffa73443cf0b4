"""Numba kernels launched outside graphed functions on CPU Arrays: a graph of one node."""

from __future__ import annotations

from typing import Any

from graphjit._graphed import Graphed
from graphjit.backends.base import Device
from graphjit.kernel.frontend import per_kernel


def launch(device: Device, dispatcher: Any, args: tuple[Any, ...], launch_config: Any) -> None:
    """Run one kernel now.

    Parameters
    ----------
    device : Device
        The CPU device of the arguments.
    dispatcher : numba.cuda.dispatcher.CUDADispatcher
        The kernel.
    args : tuple
        Its arguments, Arrays and NumPy arrays among them.
    launch_config : numba launch configuration
        Grid, block and dynamic shared memory.
    """
    _launcher(dispatcher)(
        args, (launch_config.griddim, launch_config.blockdim, launch_config.sharedmem)
    )


@per_kernel
def _launcher(dispatcher: Any) -> Graphed:
    def run(args: tuple[Any, ...], configuration: tuple[Any, ...]) -> None:
        grid, block, shared = configuration
        dispatcher[grid, block, 0, shared](*args)

    run.__name__ = run.__qualname__ = dispatcher.py_func.__name__
    return Graphed(run, static_argnames=("configuration",))
