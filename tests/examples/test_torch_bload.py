"""The BLoad example as a user runs it; what it counts is counted here again, from the verses alone."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launcher import run_launcher

SCRIPT = Path(__file__).parents[2] / "examples" / "torch_bload.py"
LIMIT = 200
SHORT = ("--limit", str(LIMIT), "--batch-words", "256", "--words", "300", "--lr", "0.02")
pytestmark = pytest.mark.timeout(300)  # each test launches ranks anew, which takes seconds, and far more on a busy machine


@pytest.fixture(scope="module")
def lengths() -> list[int]:
    """Of the verses trained on: words, marks and an end."""
    whole = ["bible", "-f", "Gen1:1-Rev22:21"]
    text = subprocess.run(whole, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    verses = [line.split(" ", 1)[1] for line in text.splitlines()[:LIMIT]]
    return [len(re.findall(r"\w+|[^\w\s]", verse)) + 1 for number, verse in enumerate(verses) if number % 20 != 19]


def results(folder: Path, size: int, *options: str) -> tuple[dict[str, Any], str]:
    launcher = [str(Path(sys.executable).with_name("horovodrun")), "-np", str(size), sys.executable, str(SCRIPT)]
    run = run_launcher([*launcher, "--json", str(folder / "results.json"), *SHORT, *options], folder)
    assert run.returncode == 0, run.stdout
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    assert found["ranks"] == size
    return found["strategies"], run.stdout


def expected(strategy: str, lengths: list[int]) -> tuple[int, int, int]:
    """Words deleted, padding, elements of a block, one verse after the other, for strategies without packing."""
    mean = round(float(np.mean(lengths)))
    time = max(lengths) if strategy == "zero-pad" else mean
    deleted = padding = 0
    for length in lengths:
        if strategy == "sampling" and length < time:
            deleted += length
            continue
        deleted += max(length - time, 0)
        padding += max(time - length, 0)
    return deleted, padding, time


def check(strategies: dict[str, Any], lengths: list[int], size: int) -> None:
    for strategy, found in strategies.items():
        assert found["processed"] == found["steps"] * size * found["batch_size"] * found["block_length"]
        assert found["processed"] == sum(lengths) - found["deleted"] + found["padding"]
        assert found["padding"] == found["padding_packed"] + found["blocks_added"] * found["block_length"]
        assert 0 <= found["blocks_added"] < size * found["batch_size"]
        if strategy != "bload":
            assert (found["deleted"], found["padding_packed"], found["block_length"]) == expected(strategy, lengths)
        assert math.isfinite(found["test_perplexity"])
        assert found["test_perplexity"] < found["perplexity_at_start"]
        assert found["epoch_seconds"] > 0


@pytest.mark.parametrize(("model", "size"), [("lstm", 2), ("transformer", 3)])
def test_four_strategies(tmp_path: Path, lengths: list[int], model: str, size: int) -> None:
    strategies, output = results(tmp_path, size, "--model", model)
    assert list(strategies) == ["zero-pad", "sampling", "mix-pad", "bload"]
    check(strategies, lengths, size)
    bload, packed = strategies["bload"], {name: found["padding_packed"] for name, found in strategies.items()}
    assert bload["deleted"] == 0
    assert bload["block_length"] == max(lengths)
    assert packed["bload"] < packed["mix-pad"] / 2 < packed["zero-pad"] / 4
    assert packed["sampling"] == 0
    assert bload["padding"] < strategies["zero-pad"]["padding"] / 2
    assert -(-sum(lengths) // max(lengths)) == bload["lower_bound_ceil"] <= bload["lower_bound_l2"]
    assert bload["lower_bound_l2"] <= bload["blocks"] - bload["blocks_added"]
    assert len({found["perplexity_at_start"] for found in strategies.values()}) == 1  # the same model, tested alike
    assert "at least (L2)" in output


def test_gradients_may_be_compressed_too(tmp_path: Path, lengths: list[int]) -> None:
    strategies, _ = results(tmp_path, 2, "--strategies", "bload", "--epochs", "2", "--compression")
    assert list(strategies) == ["bload"]
    check(strategies, lengths, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--limit", "19"), "error: --limit must be at least 20, got 19"),
        (("--epochs", "0"), "error: --epochs must be at least 1, got 0"),
        (("--strategies", "half-pad"), "invalid choice: 'half-pad'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = run_launcher([sys.executable, str(SCRIPT), *options], tmp_path)
    assert run.returncode != 0
    assert said in run.stdout
    assert "Traceback" not in run.stdout
