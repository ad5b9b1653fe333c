"""What a process compiles by itself, told by a new one."""

import sys
from pathlib import Path

from launcher import run_launcher

_PROGRAM = """
import numpy as np
from hvd_adaptive.ops import kernels
from hvd_adaptive.ops.host_ops import HostOps
{build}
loops = [loop for name, loop in vars(kernels).items() if hasattr(loop, "signatures") and name[0] != "_"]
built = [list(loop.signatures) for loop in loops]
ops, x = HostOps(), np.random.default_rng(0).standard_normal(120_000).astype(np.float32)
lent = np.ones(120_000, np.float32)
lent.flags.writeable = False
ops.add_finite(x, 0, lent)
positions = ops.top_positions(x, 1200)
raw = ops.pack(positions, 17)
raw.flags.writeable = False
positions = ops.unpack(raw, 17, 1200, "int64")
ops.scatter_add(ops.clear(x, positions), positions, lent[:1200])
for width in (lent.size, 512):
    ops.row_norm(lent, width)
    ops.row_sum(lent, width)
    ops.levels_of(lent, ops.row_max(lent, width), width, 0, 7, ops.uniform(lent.size, 4 * [(1, 2)], lent))
ops.sample(1200, 120_000, [(1, 2), (3, 4)], 17, x)
print(all(built), built == [list(loop.signatures) for loop in loops])
"""


def assert_nothing_is_left_to_compile(build: str, folder: Path) -> None:
    """After the statements ``build``, taking gradients f32[n], selecting, packing and adding up compiles nothing any more."""
    run = run_launcher([sys.executable, "-c", _PROGRAM.format(build=build)], folder, 100)
    assert run.stdout.split()[-2:] == ["True", "True"], run.stdout
