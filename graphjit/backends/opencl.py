"""Where OpenCL's loader finds Intel's runtime for CPUs, if that came as a wheel."""

from __future__ import annotations

import os
import sys


def name_cpu_runtime() -> None:
    """Name the runtime to the loader, which looks when dpctl is first imported, by whomever.

    The wheel's own registration holds a path of the machine that made it.
    """
    driver = os.path.join(sys.prefix, "lib", "libintelocl.so")
    if "OCL_ICD_FILENAMES" not in os.environ and os.path.exists(driver):
        os.environ["OCL_ICD_FILENAMES"] = driver
