"""Compiles the call path where there is a C compiler; the same modules run as they are without.

GRAPHJIT_PURE_PYTHON=1 leaves them as they are.
"""

import os
import warnings

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Each has a .pxd beside it that gives its classes C fields.
MODULES = (
    "graphjit/_interpreter.pyx",
    "graphjit/_memory.py",
    "graphjit/_locks.py",
    "graphjit/_activity.py",
    "graphjit/_guards.py",
    "graphjit/_inputs.py",
    "graphjit/_replay.py",
    "graphjit/_dispatch.py",
    "graphjit/schedule/scalar_words.py",
    "graphjit/backends/executable.py",
    "graphjit/backends/cpu/memory.py",
    "graphjit/backends/cpu/program.py",
    "graphjit/backends/cpu/executable.py",
    "graphjit/backends/cuda/memory.py",
    "graphjit/backends/cuda/calls.pyx",
    "graphjit/backends/cuda/image.py",
    "graphjit/backends/cuda/nodes.py",
    "graphjit/backends/cuda/instances.py",
    "graphjit/backends/cuda/executable.py",
)


def extensions() -> list[Extension]:
    """The compiled modules."""
    if os.environ.get("GRAPHJIT_PURE_PYTHON", "0") not in ("", "0"):
        return []
    from Cython.Build import cythonize

    # Without debugging information it builds sooner.
    # Newer compilers refuse what older ones warn of.
    options = [] if os.name == "nt" else ["-O3", "-g0", "-Werror=incompatible-pointer-types"]
    made = [
        Extension(path.rpartition(".")[0].replace("/", "."), [path], extra_compile_args=options)
        for path in MODULES
    ]
    # Python's own semantics: nothing is traded for speed but what the .pxd files say.
    return cythonize(made, build_dir="build", compiler_directives={"language_level": 3})


class BuildAllOrNone(build_ext):
    """Compiles all modules, or none where one fails: compiled ones need each other."""

    def run(self) -> None:
        """Compile them."""
        in_place = self.inplace
        try:
            super().run()
        except Exception as error:
            problem = f"graphjit's call path is not compiled, and runs slower: {error}"
            warnings.warn(problem, stacklevel=2)
            for self.inplace in (0, in_place):
                for extension in self.extensions:
                    file = self.get_ext_fullpath(extension.name)
                    if os.path.exists(file):
                        os.remove(file)
            self.extensions = []


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildAllOrNone},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
