"""The example as a user runs it: through horovodrun, on several numbers of ranks, over MPI and Gloo, interrupted and resumed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import assert_compressed, assert_ends_with_a_sentence, results, run_example

SCRIPT = "torch_fashion_mnist.py"
pytestmark = pytest.mark.timeout(300)  # each test launches ranks anew, which takes seconds, and far more on a busy machine


@pytest.mark.parametrize(("size", "gloo"), [(1, False), (2, True), (4, False), (8, False)])
def test_it_runs_on_any_number_of_ranks(tmp_path: Path, size: int, gloo: bool) -> None:
    found = results(SCRIPT, tmp_path, size, "--epochs", "1", "--limit", "2048", "--batch-size", str(128 // size), gloo=gloo)
    assert_compressed(found, size)


def test_an_interrupted_run_continues_bit_for_bit(tmp_path: Path) -> None:
    options = ("--limit", "2048", "--scope", "layer-wise", "--factor", "20", "--checkpoint")
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    for folder in (whole, halves):
        folder.mkdir()
    results(SCRIPT, whole, 2, "--epochs", "2", *options, str(whole))
    results(SCRIPT, halves, 2, "--epochs", "1", *options, str(halves))
    results(SCRIPT, halves, 2, "--epochs", "2", "--resume", *options, str(halves))
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
    found = results(SCRIPT, tmp_path, 2, "--dense", "--epochs", "1", "--limit", "1024")
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
    assert_ends_with_a_sentence(SCRIPT, tmp_path, options, said)


def test_resuming_without_a_ranks_state_is_refused_by_all(tmp_path: Path) -> None:
    options = ("--limit", "512", "--checkpoint", str(tmp_path / "saved"))
    results(SCRIPT, tmp_path, 2, "--epochs", "1", *options)
    (tmp_path / "saved" / "compression.rank1.pt").unlink()
    run = run_example(SCRIPT, tmp_path, 2, "--epochs", "2", "--resume", *options)
    assert run.returncode != 0
    assert "the model is of epoch 1, the compression states of ranks 0, 1, ... are of [1, None]" in run.stdout
    assert "Traceback" not in run.stdout
