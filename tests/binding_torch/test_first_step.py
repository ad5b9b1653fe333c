"""What a first step need not wait for."""

from pathlib import Path

from first_use import assert_nothing_is_left_to_compile

BUILD = """
import torch, horovod.torch as hvd, hvd_adaptive.torch as hva
from hvd_adaptive import TopK
hvd.init()
compression = hva.EntireModel(torch.nn.Linear(400, 300).named_parameters(), TopK(100))
"""


def test_nothing_is_compiled_in_it(tmp_path: Path) -> None:
    assert_nothing_is_left_to_compile(BUILD, tmp_path)
