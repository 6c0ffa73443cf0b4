"""Numba kernels launched outside graphed functions on Arrays.

On CUDA's GPUs it is Numba's own. Elsewhere each launch is a graph of one node.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from graphjit._array import Array
from graphjit._context import stream_address
from graphjit._graphed import Graphed
from graphjit.backends.base import Device
from graphjit.kernel.frontend import per_kernel


def launch(device: Device, dispatcher: Any, args: tuple[Any, ...], launch_config: Any) -> None:
    """Run one kernel now.

    Parameters
    ----------
    device : Device
        The device of the arguments.
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


def for_numba(args: tuple[Any, ...], stream: Any) -> tuple[Any, ...]:
    """The arguments of a launch on a GPU, with Arrays as Numba's own, in order with other streams.

    Numba would ask for their array interface, wait for the stream that it names, and leave memory
    that can't be reused: it is told that the launch's stream may read and write them instead.
    """
    return tuple(_device_array(arg, stream) if isinstance(arg, Array) else arg for arg in args)


def _device_array(array: Array, stream: Any) -> Any:
    array._memory.used_on(stream_address(stream), True)
    if array._readonly or array.dtype.kind == "V":
        return array  # Numba's own arrays don't have that
    return cuda.from_cuda_array_interface(array._interface(), owner=array, sync=False)


@per_kernel
def _launcher(dispatcher: Any) -> Graphed:
    def run(args: tuple[Any, ...], configuration: tuple[Any, ...]) -> None:
        grid, block, shared = configuration
        dispatcher[grid, block, 0, shared](*args)

    run.__name__ = run.__qualname__ = dispatcher.py_func.__name__
    return Graphed(run, static_argnames=("configuration",))
