"""What programs that run on ranks of their own write for the test that launched them."""

import hashlib
import json
import math
import socket
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Found = dict[str, Any]


def digest(parameters: ArrayLike) -> str:
    """Differs where any bit of the parameters does."""
    return hashlib.sha256(np.ascontiguousarray(parameters).tobytes()).hexdigest()


def write(folder: Path, hvd: Any, cases: dict[str, Found]) -> None:
    """Called by each rank, once."""
    found = {"host": socket.gethostname(), "size": hvd.size(), "mpi": bool(hvd.mpi_enabled()), "cases": cases}
    (folder / f"rank{hvd.rank()}.json").write_text(json.dumps(found))


def read(folder: Path, size: int) -> list[Found]:
    """What the ranks wrote, in rank order."""
    found = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(size)]
    assert [one["size"] for one in found] == [size] * size
    return found


def assert_trained(found: list[Found]) -> dict[str, str]:
    """All ranks end with the same parameters, and the loss over all of them is finite and fell; the digest of each case."""
    digests = {}
    for name in found[0]["cases"]:
        cases = [one["cases"][name] for one in found]
        (digests[name],) = {case["digest"] for case in cases}
        losses = [sum(step) / len(step) for step in zip(*(case["losses"] for case in cases), strict=True)]
        assert all(map(math.isfinite, losses)), (name, losses)
        assert losses[-1] < 0.95 * losses[0], (name, losses)  # of the same batch, so without noise
    return digests
