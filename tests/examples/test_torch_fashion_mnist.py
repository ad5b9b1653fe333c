"""The example interrupted and resumed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import results, run_example

SCRIPT = "torch_fashion_mnist.py"
pytestmark = pytest.mark.timeout(300)  # each test launches ranks anew, which takes seconds, and far more on a busy machine


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


def test_resuming_without_a_ranks_state_is_refused_by_all(tmp_path: Path) -> None:
    options = ("--limit", "512", "--checkpoint", str(tmp_path / "saved"))
    results(SCRIPT, tmp_path, 2, "--epochs", "1", *options)
    (tmp_path / "saved" / "compression.rank1.pt").unlink()
    run = run_example(SCRIPT, tmp_path, 2, "--epochs", "2", "--resume", *options)
    assert run.returncode != 0
    assert "the model is of epoch 1, the compression states of ranks 0, 1, ... are of [1, None]" in run.stdout
    assert "Traceback" not in run.stdout
