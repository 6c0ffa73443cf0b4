"""graphjit: a tracing JIT for graphs of Numba CUDA kernels."""

# ruff: noqa: E402
from graphjit._sources import prefer_sources as _prefer_sources

_prefer_sources()

from graphjit._array import Array
from graphjit._branches import cond, switch
from graphjit._cache import CacheInfo
from graphjit._callbacks import host_callback
from graphjit._context import default_device, devices, stream, synchronize, use_backend
from graphjit._creation import (
    arange,
    array,
    asarray,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from graphjit._dispatch import is_compiled
from graphjit._errors import (
    ArgumentError,
    ClosedError,
    ConcretizationError,
    CUDAError,
    DeviceError,
    DeviceMemoryError,
    DTypeError,
    GraphjitError,
    IntegerRangeError,
    KernelCompileError,
    LaunchError,
    LeakedTracerError,
    SimulatorError,
    TraceError,
    UnsupportedKernelError,
)
from graphjit._graph import Graph
from graphjit._graphed import Graphed, graphed
from graphjit._intercept import install as _install
from graphjit._loops import fori_loop, while_loop
from graphjit._make_graph import make_graph
from graphjit._memory_analysis import MemoryAnalysis
from graphjit._misses import explain_misses
from graphjit._scan import scan
from graphjit._stages import Compiled, Lowered, Traced
from graphjit.backends.base import Device
from graphjit.backends.binding_stats import BindingStats
from graphjit.kernel.declarations import declare_effects

_install()

__version__ = "0.1.0"
__all__ = [
    "ArgumentError",
    "Array",
    "BindingStats",
    "CUDAError",
    "CacheInfo",
    "ClosedError",
    "Compiled",
    "ConcretizationError",
    "DTypeError",
    "Device",
    "DeviceError",
    "DeviceMemoryError",
    "Graph",
    "Graphed",
    "GraphjitError",
    "IntegerRangeError",
    "KernelCompileError",
    "LaunchError",
    "LeakedTracerError",
    "Lowered",
    "MemoryAnalysis",
    "SimulatorError",
    "TraceError",
    "Traced",
    "UnsupportedKernelError",
    "arange",
    "array",
    "asarray",
    "cond",
    "declare_effects",
    "default_device",
    "devices",
    "empty",
    "empty_like",
    "explain_misses",
    "fori_loop",
    "full",
    "full_like",
    "graphed",
    "host_callback",
    "is_compiled",
    "make_graph",
    "ones",
    "ones_like",
    "scan",
    "stream",
    "switch",
    "synchronize",
    "use_backend",
    "while_loop",
    "zeros",
    "zeros_like",
]
