"""What a process compiles by itself, told by a new one."""

import sys
from pathlib import Path

from launcher import run_launcher

_PROGRAM = """
import numpy as np
{build}
from hvd_adaptive.ops.kernels import positions_from
from hvd_adaptive.ops.selection import top_positions
built = list(positions_from.signatures)
top_positions(np.arange(100_000, dtype=np.float32), 1000)
print(len(built), built == list(positions_from.signatures))
"""


def assert_nothing_is_left_to_compile(build: str, folder: Path) -> None:
    """After the statements ``build``, selecting from a gradient f32[n] compiles nothing any more."""
    run = run_launcher([sys.executable, "-c", _PROGRAM.format(build=build)], folder, 100)
    assert run.stdout.split()[-2:] == ["1", "True"], run.stdout
