"""Lengths measured by real ranks, each a part; what goes wrong on one is told to all."""

import logging
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from rank_pool import RankPool
from training import attempt_soon, refused_alike

import hvd_adaptive.torch as hva
from hvd_adaptive import AgreementError, ConfigError, SourceError
from hvd_adaptive.binding.gather_now import communicator
from hvd_adaptive.torch.collective import HorovodCollective

SIZES = [0, 1, 2, 5, 17]


class Texts:
    """Sequence number i has ``lengths[i]`` characters; it notes which were read."""

    def __init__(self, lengths: Any) -> None:
        self.lengths = lengths
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        length = self.lengths[index]
        return "x" * length if isinstance(length, int) and length >= 0 else length


def made(n: int) -> list[int]:
    return [1 + 7 * index % 30 for index in range(n)]


def warned(function: Any) -> tuple[Any, list[str]]:
    """What a function returns, and the warnings logged meanwhile."""
    texts: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    keep, log = Keep(logging.WARNING), logging.getLogger("hvd_adaptive")
    log.addHandler(keep)
    try:
        return function(), texts
    finally:
        log.removeHandler(keep)


def of_every_size() -> Any:
    """Lengths, what this rank read, and how often a gather of lengths went through Horovod."""
    names: list[str] = []
    start = HorovodCollective.start

    def noting(self: Any, kind: Any, x: Any, name: str, *more: Any) -> int:
        names.append(name)
        return start(self, kind, x, name, *more)

    with mock.patch.object(HorovodCollective, "start", noting):
        found = []
        for n in SIZES:
            texts = Texts(made(n))
            lengths = hva.gather_lengths(texts)
            assert lengths.dtype == np.int32
            found.append((lengths.tolist(), texts.read))
    return found, sum(name.endswith("lengths.all") for name in names)


def assert_measured_once(answers: list[Any], through_horovod: int) -> None:
    for number, n in enumerate(SIZES):
        shares = []
        for found, gathers in answers:
            lengths, read = found[number]
            assert lengths == made(n)
            assert gathers == through_horovod
            shares.append(read)
        assert [index for share in shares for index in share] == list(range(n)), "consecutive parts, each sample read once"
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_get_all_lengths_in_order(ranks: Any, size: int) -> None:
    assert_measured_once(ranks(size).run(of_every_size), through_horovod=0)


def test_over_gloo(gloo_ranks: RankPool) -> None:
    assert_measured_once(gloo_ranks.run(of_every_size), through_horovod=len(SIZES) - 1)


def test_one_rank_alone(ranks: Any) -> None:
    assert_measured_once(ranks(1).run(of_every_size), through_horovod=0)


def test_other_functions_and_samples(ranks: Any) -> None:
    def on_rank() -> Any:
        pairs = [(torch.zeros(n, 3), n) for n in made(9)]
        return [
            hva.gather_lengths(pairs, lambda pair: len(pair[0])).tolist(),
            hva.gather_lengths(pairs, lambda pair: torch.tensor(pair[1])).tolist(),
            hva.gather_lengths([pair[0] for pair in pairs], progress=False).tolist(),
        ]

    assert ranks(2).run(on_rank) == [[made(9)] * 3] * 2


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "zero": (0, ConfigError, "has length 0; every length must be a whole number"),
    "negative": (-2, ConfigError, "has length -2"),
    "NaN": (float("nan"), ConfigError, "has length nan"),
    "fraction": (2.5, ConfigError, "has length 2.5"),
    "none": (None, ConfigError, "has length None"),
    "too long": (2**31, ConfigError, "has length 2147483648"),
    "raises": (KeyError("lost"), SourceError, "could not be measured: KeyError: 'lost'"),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", list(BAD))
def test_what_is_wrong_on_one_rank_is_told_to_all(ranks: Any, size: int, name: str) -> None:
    bad, kind, said = BAD[name]
    n, at = 10, 9  # the last rank's

    def on_rank() -> None:
        def length_of(length: Any) -> Any:
            if isinstance(length, Exception):
                raise length
            return length

        lengths: list[Any] = list(made(n))
        lengths[at] = bad
        hva.gather_lengths(lengths, length_of)

    text = refused_alike(ranks(size), kind, on_rank)
    assert f"gather_lengths: rank {size - 1}: dataset[{at}] " in text
    assert said in text


def test_the_first_of_several_ranks_at_fault_is_named(ranks: Any) -> None:
    answers = attempt_soon(ranks(3), lambda: hva.gather_lengths([0] * 9, lambda length: length))
    assert [str(answer).startswith("gather_lengths: rank 0: dataset[0] has length 0") for answer in answers] == [True] * 3
    assert "(and 2 more ranks failed)" in str(answers[0])


def test_ranks_go_on_after_a_refusal(ranks: Any) -> None:
    def on_rank() -> Any:
        with pytest.raises(ConfigError):
            hva.gather_lengths([1, 2, 0 if hvd.rank() else 3], int)
        return hva.gather_lengths(Texts(made(5))).tolist()

    assert ranks(2).run(on_rank) == [made(5)] * 2


def test_data_sets_of_different_size(ranks: Any) -> None:
    text = refused_alike(ranks(3), AgreementError, lambda: hva.gather_lengths(Texts(made(7 + hvd.rank() // 2))))
    assert "number of samples: rank 0 has 7, rank 2 has 8; give every rank the same data set" in text


ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "an iterator": ({"dataset": iter([1])}, "dataset must have len() and [], got list_iterator; data of unknown number"),
    "a set": ({"dataset": {1, 2}}, "dataset must have len() and [], got set"),
    "no function": ({"length_fn": 7}, "length_fn must be a function from a sample to its length, got 7"),
    "tuples": ({"dataset": [("a", "b")] * 4}, "a sample is a tuple of 2, which len() would take for its length; give length_fn="),
    "dicts": ({"dataset": [{"x": [1, 2, 3]}] * 4}, "a sample is a dict of 1"),
    "cache": ({"cache": 3}, "cache must be a path or None, got 3"),
    "key": ({"key": 3}, "key must be a text that names the data set, or None, got 3"),
}


@pytest.mark.parametrize("name", list(ILLEGAL))
def test_what_is_illegal_on_one_rank_is_told_to_all(ranks: Any, name: str) -> None:
    illegal, said = ILLEGAL[name]

    def on_rank() -> None:
        legal: dict[str, Any] = {"dataset": ["abc"] * 4}
        hva.gather_lengths(**(legal | illegal if hvd.rank() == 1 else legal))

    text = refused_alike(ranks(2), ConfigError, on_rank)
    assert said in text


def test_only_some_ranks(ranks: Any) -> None:
    def on_rank() -> Any:
        members = hvd.add_process_set([0, 2])
        try:
            if hvd.rank() == 1:
                with pytest.raises(ConfigError, match="rank 1 is not in its process set"):
                    hva.gather_lengths(Texts(made(5)), process_set=members)
                return None
            texts = Texts(made(5))
            return hva.gather_lengths(texts, process_set=members).tolist(), texts.read
        finally:
            hvd.remove_process_set(members)

    assert ranks(3).run(on_rank) == [(made(5), [0, 1]), None, (made(5), [2, 3, 4])]


def test_a_cache_on_one_host_serves_all(ranks: Any, tmp_path: Path) -> None:
    """Each rank has a folder of its own, as on hosts that share no disk."""

    def on_rank() -> Any:
        folder = tmp_path / str(hvd.rank())
        folder.mkdir()
        if hvd.rank() > 0:
            (folder / "lengths 40").write_bytes(b"of no interest")
        found = []
        for n in (40, 40, 0, 0):
            texts = Texts(made(n))
            lengths = hva.gather_lengths(texts, cache=folder / f"lengths {n}")
            found.append((lengths.tolist() == made(n), len(texts.read)))
        return found, sorted((file.name, file.stat().st_size > 50) for file in folder.iterdir())

    first, *others = ranks(3).run(on_rank)
    assert first == ([(True, 13), (True, 8), (True, 0), (True, 0)], [("lengths 0", True), ("lengths 40", True)])
    for found, files in others:
        assert [correct for correct, _ in found] == [True] * 4
        assert found[0][1] in {13, 14}
        assert found[1][1] == 0
        assert files == [("lengths 40", False)]


def test_a_damaged_cache_is_replaced(ranks: Any, tmp_path: Path) -> None:
    def on_rank() -> Any:
        path = str(tmp_path / "lengths")

        def measure() -> Any:
            return hva.gather_lengths(Texts(made(20)), cache=path, key="v1").tolist()

        measure()
        if hvd.rank() == 0:
            content = Path(path).read_bytes()
            Path(path).write_bytes(content[:-3])
        again, texts = warned(measure)
        return again == made(20), texts, hvd.rank() or Path(path).read_bytes() == content

    first, second = ranks(2).run(on_rank)
    assert first[0]
    assert first[2]
    assert len(first[1]) == 1
    assert "is damaged; the lengths are measured again" in first[1][0]
    assert second == (True, [], 1)


@pytest.mark.parametrize("changed", [0, 19])
def test_a_cache_that_is_out_of_date_is_replaced(ranks: Any, tmp_path: Path, changed: int) -> None:
    def on_rank() -> Any:
        def measure(lengths: list[int]) -> Any:
            return hva.gather_lengths(Texts(lengths), cache=tmp_path / "lengths").tolist()

        measure(made(20))
        others = made(20)
        others[changed] = 50
        return [warned(lambda: measure(others)) for _ in range(2)]

    for rank, ((found, texts), (again, no_texts)) in enumerate(ranks(2).run(on_rank)):
        assert found == again
        assert found[changed] == 50
        assert no_texts == []
        assert len(texts) == (1 if rank == 0 else 0)
        assert rank or f"is out of date: dataset[{changed}] has length 50, not {made(20)[changed]}" in texts[0]


def test_a_cache_of_another_data_set_is_refused_by_all(ranks: Any, tmp_path: Path) -> None:
    def on_rank() -> Any:
        said = []
        hva.gather_lengths(Texts(made(20)), cache=tmp_path / "lengths")
        for dataset, options in (
            (Texts(made(21)), {}),
            (["x"] * 20, {}),
            (Texts(made(20)), {"length_fn": str.__len__}),
            (Texts(made(20)), {"key": "v2"}),
        ):
            with pytest.raises(ConfigError) as caught:
                hva.gather_lengths(dataset, cache=tmp_path / "lengths", **options)
            said.append(str(caught.value))
        texts = Texts(made(20))
        hva.gather_lengths(texts, cache=tmp_path / "lengths")
        return said, len(texts.read)

    (said, read), (also, other) = ranks(2).run(on_rank)
    assert said == also
    assert ["rank 0: cache=" in text and "is of another data set" in text for text in said] == [True] * 4
    assert (read, other) == (8, 0)


def test_lengths_are_right_even_if_they_cannot_be_kept(ranks: Any, tmp_path: Path) -> None:
    def on_rank() -> Any:
        folder = tmp_path / f"of rank {hvd.rank()}"
        folder.mkdir()

        def length_of(text: str) -> int:
            shutil.rmtree(folder, ignore_errors=True)
            return len(text)

        return warned(lambda: hva.gather_lengths(Texts(made(6)), length_of, cache=folder / "lengths").tolist())

    (found, texts), (other, no_texts) = ranks(2).run(on_rank)
    assert found == other == made(6)
    assert len(texts) == 1
    assert "the lengths could not be kept in" in texts[0]
    assert no_texts == []


class Noting:
    """A communicator that notes when it is freed."""

    def __init__(self, group: Any, freed: list[bool]) -> None:
        self.group, self.freed = group, freed

    def Free(self) -> None:  # noqa: N802 - MPI's name
        self.freed.append(True)
        self.group.Free()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)


def test_every_communicator_is_freed(ranks: Any) -> None:
    """MPI has a limited number of them."""

    def on_rank() -> Any:
        freed: list[bool] = []
        noting = mock.patch(
            "hvd_adaptive.torch.bload.lengths.communicator", lambda collective: Noting(communicator(collective), freed)
        )
        with noting:
            found = hva.gather_lengths([1, 2, 3], int).tolist()
        return found, len(freed)

    assert ranks(2).run(on_rank) == [([1, 2, 3], 1)] * 2
