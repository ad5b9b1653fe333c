"""One rank's stream, without ranks."""

from collections.abc import Iterator
from typing import Any

import torch

from hvd_adaptive.bload import Batches, OpenBlocks
from hvd_adaptive.bload.packed import cut
from hvd_adaptive.torch.bload.reader import Reader


class Counting:
    """Sequences of 4; the third cannot be read, and those after it can."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        self.read += 1
        if self.read == 3:
            raise OSError("disk gone")
        return torch.full((4,), self.read)


def reader(source: Any, **options: Any) -> Reader:
    return Reader(source, len, cut, OpenBlocks(4, **options), Batches(4, 1), again=False)


def test_nothing_is_read_after_a_failure() -> None:
    source = Counting()
    one = reader(source)
    for _ in range(3):
        one.fill(5)
    assert (source.read, len(one.batches), one.ended) == (3, 2, False)
    assert "after 2 samples the iterable raised OSError: disk gone" in str(one.error)


def test_no_more_is_read_than_is_wanted() -> None:
    source = Counting()
    one = reader(source)
    one.fill(1)
    one.fill(1)
    assert (source.read, len(one.batches)) == (1, 1)


def test_samples_are_cut_only_where_a_block_holds_a_part() -> None:
    samples = [torch.arange(3), torch.arange(7)]
    one = reader(samples, overlong="split")
    one.fill(10)
    assert one.ended
    given = {id(sample) for (filled,) in one.batches.take(len(one.batches)) for sample in filled.contents}
    assert id(samples[0]) in given
    assert id(samples[1]) not in given
    assert one.like.tolist() == []
