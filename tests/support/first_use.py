"""What a process compiles by itself, told by a new one."""

import os
import subprocess
import sys

_PROGRAM = """
import numpy as np
{build}
from hvd_adaptive.ops.kernels import positions_from
from hvd_adaptive.ops.selection import top_positions
built = list(positions_from.signatures)
top_positions(np.arange(100_000, dtype=np.float32), 1000)
print(len(built), built == list(positions_from.signatures))
"""


def assert_nothing_is_left_to_compile(build: str) -> None:
    """After the statements ``build``, selecting from a gradient f32[n] compiles nothing any more."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [sys.executable, "-c", _PROGRAM.format(build=build)]
    run = subprocess.run(command, env=environment, text=True, capture_output=True, check=False, timeout=100)
    assert run.stdout.split() == ["1", "True"], run
