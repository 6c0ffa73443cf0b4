"""The CPU backend: kernels as native code, a whole graph replayed by one native call."""

from graphjit.backends.cpu.backend import CPUBackend

BACKEND = CPUBackend()
