"""The example as a user runs it: through horovodrun, on several numbers of ranks, over MPI and Gloo, interrupted and resumed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_pool import run_launcher

SCRIPT = Path(__file__).parents[2] / "examples" / "torch_fashion_mnist.py"
pytestmark = pytest.mark.timeout(300)  # each test launches ranks anew, which takes seconds, and far more on a busy machine


def run_example(folder: Path, size: int, *options: str, gloo: bool = False) -> subprocess.CompletedProcess[str]:
    launcher = [str(Path(sys.executable).with_name("horovodrun")), *(["--gloo"] if gloo else []), "-np", str(size)]
    program = [sys.executable, str(SCRIPT), "--json", str(folder / "results.json"), *options]
    return run_launcher([*launcher, *program], folder)


def results(folder: Path, size: int, *options: str, gloo: bool = False) -> dict[str, Any]:
    run = run_example(folder, size, *options, gloo=gloo)
    assert run.returncode == 0, run.stdout
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


@pytest.mark.parametrize(("size", "gloo"), [(1, False), (2, True), (4, False), (8, False)])
def test_it_runs_on_any_number_of_ranks(tmp_path: Path, size: int, gloo: bool) -> None:
    found = results(tmp_path, size, "--epochs", "1", "--limit", "2048", "--batch-size", str(128 // size), gloo=gloo)
    assert found["ranks"] == size
    assert found["test_accuracy"] > 0.2  # 16 steps; guessing gives 0.1
    if size == 1:  # Horovod calls no compression
        assert (found["bytes_sent"], found["bytes_dense"], found["factor"]) == (0, 0, 1.0)
    else:
        assert found["bytes_dense"] > 40 * found["bytes_sent"] > 0
        assert found["factor"] == pytest.approx(100, rel=1e-2)


def test_an_interrupted_run_continues_bit_for_bit(tmp_path: Path) -> None:
    options = ("--limit", "2048", "--scope", "layer-wise", "--factor", "20", "--checkpoint")
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    for folder in (whole, halves):
        folder.mkdir()
    results(whole, 2, "--epochs", "2", *options, str(whole))
    results(halves, 2, "--epochs", "1", *options, str(halves))
    results(halves, 2, "--epochs", "2", "--resume", *options, str(halves))
    for name in ("shared.pt", "compression.rank0.pt", "compression.rank1.pt"):
        assert_equal(*(torch.load(folder / name, weights_only=True) for folder in (whole, halves)))


def assert_equal(first: Any, second: Any) -> None:
    """The same structure, and the same bits in every tensor."""
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_equal(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_equal(one, other)
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    else:
        assert first == second


def test_dense_is_stock_horovod(tmp_path: Path) -> None:
    found = results(tmp_path, 2, "--dense", "--epochs", "1", "--limit", "1024")
    assert found["bytes_sent"] == found["bytes_dense"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--factor", "0.5"), "factor must be a finite number >= 1"),
        (("--compressor", "topk", "--exchange", "reduce"), "legal are auto, gather"),
        (("--compressor", "nothing"), "invalid choice: 'nothing'"),
        (("--data", "/nowhere"), "apt-get install dataset-fashion-mnist"),
        (("--limit", "10"), "less than one batch"),
    ],
)
def test_mistakes_end_with_a_sentence_and_no_traceback(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = run_launcher(["mpirun", "--oversubscribe", "-np", "2", sys.executable, str(SCRIPT), *options], tmp_path)
    assert run.returncode != 0
    assert said in run.stdout
    assert "Traceback" not in run.stdout


def test_resuming_without_a_ranks_state_is_refused_by_all(tmp_path: Path) -> None:
    options = ("--limit", "512", "--checkpoint", str(tmp_path / "saved"))
    results(tmp_path, 2, "--epochs", "1", *options)
    (tmp_path / "saved" / "compression.rank1.pt").unlink()
    run = run_example(tmp_path, 2, "--epochs", "2", "--resume", *options)
    assert run.returncode != 0
    assert "the model is of epoch 1, the compression states of ranks 0, 1, ... are of [1, None]" in run.stdout
    assert "Traceback" not in run.stdout
