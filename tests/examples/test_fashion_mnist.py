"""The Fashion-MNIST examples as a user runs them: through horovodrun, on several numbers of ranks, over MPI and Gloo."""

from pathlib import Path

import pytest
from example_runs import assert_compressed, assert_ends_with_a_sentence, results

pytestmark = pytest.mark.timeout(300)  # each test launches ranks anew, which takes seconds, and far more on a busy machine
TORCH, TENSORFLOW, KERAS = (f"{framework}_fashion_mnist.py" for framework in ("torch", "tensorflow", "keras"))
SIZES = [(TORCH, 1, False), (TORCH, 2, True), (TORCH, 8, False)]
SIZES += [(TENSORFLOW, 1, False), (TENSORFLOW, 3, False), (KERAS, 1, False), (KERAS, 2, True)]


@pytest.mark.parametrize(("script", "size", "gloo"), SIZES)
def test_it_runs_on_any_number_of_ranks(tmp_path: Path, script: str, size: int, gloo: bool) -> None:
    found = results(script, tmp_path, size, "--epochs", "1", "--limit", "2048", "--batch-size", str(128 // size), gloo=gloo)
    assert_compressed(found, size)


@pytest.mark.parametrize("script", [TORCH, TENSORFLOW])
def test_dense_is_stock_horovod(tmp_path: Path, script: str) -> None:
    found = results(script, tmp_path, 2, "--dense", "--epochs", "1", "--limit", "1024")
    assert found["bytes_sent"] == found["bytes_dense"] > 0


@pytest.mark.parametrize(
    ("script", "options", "said"),
    [
        (TORCH, ("--factor", "0.5"), "factor must be a finite number >= 1"),
        (TORCH, ("--compressor", "topk", "--exchange", "reduce"), "legal are auto, gather"),
        (TORCH, ("--compressor", "nothing"), "invalid choice: 'nothing'"),
        (TORCH, ("--data", "/nowhere"), "apt-get install dataset-fashion-mnist"),
        (TORCH, ("--limit", "10"), "less than one batch"),
        (TENSORFLOW, ("--compressor", "topk", "--exchange", "reduce"), "legal are auto, gather"),
        (TENSORFLOW, ("--limit", "10"), "less than one batch"),
        (KERAS, ("--compressor", "topk", "--exchange", "reduce"), "legal are auto, gather"),
        (KERAS, ("--limit", "10"), "less than one batch"),
    ],
)
def test_mistakes_end_with_a_sentence_and_no_traceback(tmp_path: Path, script: str, options: tuple[str, ...], said: str) -> None:
    assert_ends_with_a_sentence(script, tmp_path, options, said)
