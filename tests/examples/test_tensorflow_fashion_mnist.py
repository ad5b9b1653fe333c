"""The example as a user runs it: through horovodrun, on several numbers of ranks, over MPI and Gloo."""

from pathlib import Path

import pytest
from example_runs import assert_compressed, assert_ends_with_a_sentence, results

SCRIPT = "tensorflow_fashion_mnist.py"
pytestmark = pytest.mark.timeout(300)  # each test launches ranks anew, which takes seconds, and far more on a busy machine


@pytest.mark.parametrize(("size", "gloo"), [(1, False), (2, True), (3, False)])
def test_it_runs_on_any_number_of_ranks(tmp_path: Path, size: int, gloo: bool) -> None:
    found = results(SCRIPT, tmp_path, size, "--epochs", "1", "--limit", "2048", "--batch-size", str(128 // size), gloo=gloo)
    assert_compressed(found, size)


def test_dense_is_stock_horovod(tmp_path: Path) -> None:
    found = results(SCRIPT, tmp_path, 2, "--dense", "--epochs", "1", "--limit", "1024")
    assert found["bytes_sent"] == found["bytes_dense"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--factor", "0.5"), "factor must be a finite number >= 1"),
        (("--compressor", "topk", "--exchange", "reduce"), "legal are auto, gather"),
        (("--data", "/nowhere"), "apt-get install dataset-fashion-mnist"),
        (("--limit", "10"), "less than one batch"),
    ],
)
def test_mistakes_end_with_a_sentence_and_no_traceback(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    assert_ends_with_a_sentence(SCRIPT, tmp_path, options, said)
