"""The Fashion-MNIST example on eight ranks, which are more than cores."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from launcher import run_launcher
from rank_results import read

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(1100)]  # two runs, each ended after 500 s; eight ranks share two cores
RANKS, GLOBAL_BATCH, RATE = 8, 128, 0.16
POINT = 0.01


def run(folder: Path, programs: Path, environment: dict[str, str], size: int, *options: str) -> dict[str, Any]:
    """The results of a run at the same batch and learning rate over all ranks, whatever their number; ranks must end alike."""
    folder.mkdir()
    command = [str(Path(sys.executable).with_name("horovodrun")), "-np", str(size), sys.executable]
    command += [str(programs / "example_ranks.py"), str(folder), "--lr", str(RATE / size), *options]
    done = run_launcher([*command, "--batch-size", str(GLOBAL_BATCH // size)], folder, 500, environment)
    assert done.returncode == 0, done.stdout
    assert len({one["cases"]["end"]["digest"] for one in read(folder, size)}) == 1
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    assert found["ranks"] == size
    return found


@pytest.mark.quick
def test_they_finish_and_end_identical(tmp_path: Path, programs: Path, rank_environment: dict[str, str]) -> None:
    found = run(tmp_path / "run", programs, rank_environment, RANKS, "--epochs", "1", "--limit", "2048")
    assert found["bytes_dense"] > 40 * found["bytes_sent"] > 0
    assert found["test_accuracy"] > 0.2  # 16 steps; guessing gives 0.1


def test_they_are_as_accurate_as_two(tmp_path: Path, programs: Path, rank_environment: dict[str, str]) -> None:
    options = ("--epochs", "2", "--momentum", "0")
    eight, two = (run(tmp_path / str(size), programs, rank_environment, size, *options) for size in (RANKS, 2))
    assert two["test_accuracy"] > 0.85
    assert abs(eight["test_accuracy"] - two["test_accuracy"]) <= POINT
