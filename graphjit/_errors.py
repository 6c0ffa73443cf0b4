"""The errors graphjit raises, each also one of Python's own classes."""

from __future__ import annotations


class GraphjitError(Exception):
    """Base class of every error that graphjit raises itself."""


class ConcretizationError(GraphjitError, TypeError):
    """A value that only exists when the graph runs was needed while tracing."""


class TraceError(GraphjitError, RuntimeError):
    """Something inside a traced function can't become part of a graph."""


class LeakedTracerError(TraceError):
    """A tracer was used after its trace had ended."""


class ArgumentError(GraphjitError, TypeError):
    """A graphed function was called with arguments it can't take."""


class IntegerRangeError(ArgumentError, OverflowError):
    """A Python integer is too large for a kernel's 64 bits."""


class DTypeError(GraphjitError, TypeError):
    """An array has an element type that Numba kernels don't have."""


class DeviceError(GraphjitError, ValueError):
    """Arrays of different devices met, or a device isn't there."""


class LaunchError(GraphjitError, ValueError):
    """A kernel launch has a grid, block or memory size that no device takes."""


class KernelCompileError(GraphjitError, TypeError):
    """Numba can't compile a kernel for the types it was launched with."""


class UnsupportedKernelError(GraphjitError, RuntimeError):
    """A backend can't run a kernel; the message names the feature and who can."""


class DeviceMemoryError(GraphjitError, MemoryError, RuntimeError):
    """A device has not enough memory left."""


class ClosedError(GraphjitError, RuntimeError):
    """Something was used after it had been closed, or its memory donated."""


class CUDAError(GraphjitError, RuntimeError):
    """The CUDA driver refused a call or reports a fault on the device."""


class SimulatorError(GraphjitError, RuntimeError):
    """Numba's CUDA simulator is on, which graphjit can't trace."""
