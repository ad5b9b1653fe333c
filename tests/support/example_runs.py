"""Runs an example as a user does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from launcher import run_launcher

FOLDER = Path(__file__).parents[2] / "examples"


def run_example(script: str, folder: Path, size: int, *options: str, gloo: bool = False) -> subprocess.CompletedProcess[str]:
    """Through horovodrun, over MPI or Gloo; its results go to ``results.json`` in ``folder``."""
    launcher = [str(Path(sys.executable).with_name("horovodrun")), *(["--gloo"] if gloo else []), "-np", str(size)]
    program = [sys.executable, str(FOLDER / script), "--json", str(folder / "results.json"), *options]
    return run_launcher([*launcher, *program], folder)


def results(script: str, folder: Path, size: int, *options: str, gloo: bool = False) -> dict[str, Any]:
    """As :func:`run_example`, of a run that must succeed."""
    run = run_example(script, folder, size, *options, gloo=gloo)
    assert run.returncode == 0, run.stdout
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def assert_compressed(found: dict[str, Any], size: int) -> None:
    """What an example's results are at factor 100, after 16 steps."""
    assert found["ranks"] == size
    assert found["test_accuracy"] > 0.2  # guessing gives 0.1
    if size == 1:  # Horovod calls no compression
        assert (found["bytes_sent"], found["bytes_dense"], found["factor"]) == (0, 0, 1.0)
    else:
        assert found["bytes_dense"] > 40 * found["bytes_sent"] > 0
        assert abs(found["factor"] / 100 - 1) < 1e-2


def assert_ends_with_a_sentence(script: str, folder: Path, options: tuple[str, ...], said: str) -> None:
    """A mistake is told without a traceback."""
    program = [sys.executable, str(FOLDER / script), *options]
    run = run_launcher(["mpirun", "--oversubscribe", "-np", "2", *program], folder)
    assert run.returncode != 0
    assert said in run.stdout
    assert "Traceback" not in run.stdout
