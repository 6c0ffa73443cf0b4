"""The SYCL backend: graphs as SYCL graphs on dpnp's devices."""

from graphjit.backends.sycl.backend import SYCLBackend

BACKEND = SYCLBackend()
