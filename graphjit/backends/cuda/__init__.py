"""The CUDA backend: explicit CUDA graphs, replayed on the caller's stream."""

from graphjit.backends.cuda.backend import CUDABackend

BACKEND = CUDABackend()
