"""Streams on real ranks: equal steps whatever each rank's stream holds, and nobody left waiting when one fails."""

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from rank_pool import RankPool
from torch import nn
from torch.utils.data import DataLoader
from training import distributed, flat, refused_alike

import hvd_adaptive.torch as hva
from hvd_adaptive import AgreementError, ConfigError, SourceError
from hvd_adaptive.torch.bload.stream import _pickled

BLOCK = 12
SECONDS = 10.0


def sequences(lengths: list[int], rank: int = 0) -> list[torch.Tensor]:
    """Sequences f32[length, 3] whose elements tell which they are: rank, number, place."""
    return [
        torch.tensor([[rank, number, place] for place in range(length)], dtype=torch.float32)
        for number, length in enumerate(lengths)
    ]


def some_lengths(n: int, seed: int = 0) -> list[int]:
    return torch.randint(1, BLOCK + 1, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def taken(stream: Any) -> Any:
    """Number of batches, blocks in each, and what they hold: ``{id: [(start, end)]}``, each checked against its samples."""
    batches, sizes, held, empty = 0, set(), {}, 0
    for batch in stream:
        batches += 1
        sizes.add(len(batch))
        for block, samples in batch:
            if not block.ids.size:
                empty += 1
                assert [tuple(sample.shape) for sample in samples] == [(0, 3)]
                assert samples[0].dtype == torch.float32
                continue
            for sequence, offset, length, sample in zip(*(field.tolist() for field in block), samples, strict=True):
                assert sample[:, 1:].tolist() == [[sequence, place] for place in range(offset, offset + length)]
                held.setdefault(sequence, []).append((offset, offset + length))
    return batches, sizes, {sequence: sorted(parts) for sequence, parts in held.items()}, empty


class Streams:
    """``of(rank)`` is the stream's lengths on that rank."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def of(self, rank: int) -> list[int]:
        return some_lengths(self.numbers[rank], seed=rank)


UNEQUAL: list[tuple[int, ...]] = [(5, 200), (200, 5), (0, 90), (90, 0, 31), (1, 0, 0), (33, 33), (0, 0), (2, 0, 150)]


def run_unequal(streams: Streams, batch_size: int, window: int) -> Any:
    own = streams.of(hvd.rank())
    stream = hva.BLoadStream(sequences(own, hvd.rank()), BLOCK, batch_size, window=window)
    loops = [taken(stream) for _ in range(2)]
    assert loops[0] == loops[1], "the same stream gives the same batches"
    return loops[0], stream.stats()


def assert_equal_steps(answers: list[Any], streams: Streams, batch_size: int) -> None:
    steps = {batches for (batches, _, _, _), _ in answers}
    assert len(steps) == 1
    full = []
    for rank, ((batches, sizes, held, empty), stats) in enumerate(answers):
        lengths = streams.of(rank)
        assert sizes == ({batch_size} if batches else set())
        assert held == {number: [(0, length)] for number, length in enumerate(lengths)}
        assert (stats.sequences, stats.elements) == (len(lengths), sum(lengths))
        assert (stats.blocks, stats.empty) == (batches * batch_size, empty)
        assert stats.padding == stats.blocks * BLOCK - sum(lengths)
        full.append(stats.blocks - empty)
    assert steps == {max(-(-blocks // batch_size) for blocks in full)}, "no more than the longest stream needs"


@pytest.mark.parametrize("numbers", UNEQUAL)
@pytest.mark.parametrize(("batch_size", "window"), [(1, 1), (3, 4)])
def test_equal_steps_however_long_the_streams(ranks: Any, numbers: tuple[int, ...], batch_size: int, window: int) -> None:
    streams = Streams(*numbers)
    answers = ranks(len(numbers)).run(run_unequal, streams, batch_size, window)
    assert_equal_steps(answers, streams, batch_size)


@pytest.mark.parametrize("numbers", [(5, 60), (60, 0)])
def test_over_gloo(gloo_ranks: RankPool, numbers: tuple[int, int]) -> None:
    streams = Streams(*numbers)
    assert_equal_steps(gloo_ranks.run(run_unequal, streams, 2, 3), streams, 2)


def test_one_rank_alone(ranks: Any) -> None:
    streams = Streams(40)
    answers = ranks(1).run(run_unequal, streams, 2, 3)
    assert_equal_steps(answers, streams, 2)
    assert answers[0][1].windows > 1


def trained_on(stream: Any, epochs: int = 2) -> Any:
    """Parameters of a GRU after training on a stream, with a loss over what is no padding."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.GRU(3, 5, batch_first=True)
    optimizer = distributed(torch.optim.SGD(module.parameters(), lr=0.1), module, None, op=hvd.Sum)
    steps = 0
    for _ in range(epochs):
        for batch in stream:
            data, valid = torch.zeros(len(batch), BLOCK, 3), torch.zeros(len(batch), BLOCK, 1)
            for row, mask, packed in zip(data, valid, batch, strict=True):
                joined = torch.cat(packed.samples)
                row[: len(joined)], mask[: len(joined)] = joined / 100, 1
            elements = hvd.allreduce(valid.sum(), op=hvd.Sum, name="elements")
            optimizer.zero_grad()
            ((module(data)[0] - 1).square() * valid).sum().div(5 * elements).backward()
            optimizer.step()
            steps += 1
    return flat(module), steps


@pytest.mark.parametrize("numbers", [(3, 150), (0, 60), (120, 1, 40)])
def test_ranks_with_very_different_streams_train_to_the_end(ranks: Any, numbers: tuple[int, ...]) -> None:
    """With a plain DataLoader, the rank with less data leaves the others waiting in the allreduce."""
    streams = Streams(*numbers)

    def on_rank() -> Any:
        own = sequences(streams.of(hvd.rank()), hvd.rank())
        return trained_on(hva.BLoadStream(own, BLOCK, batch_size=2, window=4))

    (parameters, steps), *others = ranks(len(numbers)).run(on_rank)
    assert steps > 20
    assert torch.isfinite(parameters).all()
    for also, as_many in others:
        assert as_many == steps
        assert torch.equal(also, parameters)


@pytest.mark.parametrize(
    ("overlong", "expected", "deleted"),
    [
        ("split", {0: [(0, 3)], 1: [(0, 12), (12, 24), (24, 30)], 2: [(0, 12)]}, 0),
        ("truncate", {0: [(0, 3)], 1: [(0, 12)], 2: [(0, 12)]}, 18),
        ("drop", {0: [(0, 3)], 2: [(0, 12)]}, 30),
    ],
)
def test_samples_that_are_too_long(ranks: Any, overlong: str, expected: Any, deleted: int) -> None:
    def on_rank() -> Any:
        stream = hva.BLoadStream(sequences([3, 30, 12]), BLOCK, overlong=overlong)
        return taken(stream)[2], stream.stats()

    for held, stats in ranks(2).run(on_rank):
        assert held == expected
        assert (stats.overlong, stats.deleted, stats.elements) == (1, deleted, 45 - deleted)


class Failing:
    """Gives some sequences, then raises."""

    def __init__(self, good: int, error: Exception) -> None:
        self.good, self.error = good, error

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from sequences([5] * self.good)
        raise self.error


def of_length(length: Any) -> Any:
    """A ``length_fn`` that says of the third sample what it is told to."""
    seen = []

    def length_fn(sample: Any) -> Any:
        seen.append(sample)
        return length(sample) if len(seen) == 3 else len(sample)

    return length_fn


def raising(error: Exception) -> Any:
    def function(*_: Any) -> Any:
        raise error

    return function


FAULTS: dict[str, tuple[Any, type[Exception], str]] = {
    "at once": (
        lambda: {"iterable": Failing(0, OSError("disk gone"))},
        SourceError,
        "after 0 samples the iterable raised OSError",
    ),
    "later": (
        lambda: {"iterable": Failing(70, OSError("disk gone"))},
        SourceError,
        "after 70 samples the iterable raised OSError",
    ),
    "length 0": (lambda: {"length_fn": of_length(lambda _: 0)}, ConfigError, "sequence 2 of the stream has length 0"),
    "NaN": (lambda: {"length_fn": of_length(lambda _: float("nan"))}, ConfigError, "sequence 2 of the stream has length nan"),
    "too long": (lambda: {"iterable": sequences([5, 13])}, ConfigError, "sequence 1 of the stream has length 13, longer than"),
    "length_fn": (lambda: {"length_fn": of_length(raising(ValueError("odd")))}, SourceError, "at sample 2: ValueError: odd"),
    "length_fn stops": (lambda: {"length_fn": of_length(raising(StopIteration("odd")))}, SourceError, "StopIteration: odd"),
    "slice_fn": (
        lambda: {"iterable": sequences([5] * 9), "slice_fn": raising(TypeError("no slices"))},
        SourceError,
        "slice_fn could not take 0 elements from 0 of a Tensor: TypeError: no slices; give a slice_fn",
    ),
    "tuples": (lambda: {"iterable": [(torch.zeros(4), 1)]}, ConfigError, "a sample is a tuple of 2"),
}


@pytest.mark.parametrize("odd_rank", [0, 1])
@pytest.mark.parametrize("name", list(FAULTS))
def test_what_fails_on_one_rank_is_told_to_all(ranks: Any, name: str, odd_rank: int) -> None:
    make, kind, said = FAULTS[name]

    def on_rank() -> None:
        options: dict[str, Any] = {"iterable": sequences([5] * 300)}
        if hvd.rank() == odd_rank:
            options |= make()
        for _ in hva.BLoadStream(block_length=BLOCK, window=2, **options):
            hvd.allreduce(torch.ones(1), name="step")

    text = refused_alike(ranks(2), kind, on_rank)
    assert text.startswith(f"BLoadStream: rank {odd_rank}: ")
    assert said in text


def test_the_cause_stays_attached_on_its_rank(ranks: Any) -> None:
    def on_rank() -> Any:
        stream = hva.BLoadStream(Failing(3, OSError("disk gone")) if hvd.rank() else sequences([5] * 3), BLOCK)
        with pytest.raises(SourceError) as caught:
            taken(stream)
        cause = caught.value.__cause__
        return cause and repr(cause.__cause__)

    assert ranks(2).run(on_rank) == [None, "OSError('disk gone')"]


def test_ranks_go_on_after_a_failure(ranks: Any) -> None:
    def on_rank() -> Any:
        with pytest.raises(SourceError):
            taken(hva.BLoadStream(Failing(3, OSError("disk gone")) if hvd.rank() else sequences([5] * 3), BLOCK))
        return taken(hva.BLoadStream(sequences([5] * 9), BLOCK))[0]

    assert ranks(2).run(on_rank) == [5, 5]


ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "block_length": ({"block_length": 0}, "block_length must be a whole number from 1"),
    "no block_length": ({"block_length": None}, "block_length must be a whole number from 1"),
    "batch_size": ({"batch_size": 1.5}, "batch_size must be a whole number from 1"),
    "open_blocks": ({"open_blocks": 0}, "open_blocks must be a whole number from 1"),
    "window": ({"window": 0}, "window must be a whole number from 1"),
    "overlong": ({"overlong": "cut"}, "overlong must be 'error' or 'split' or 'truncate' or 'drop', got 'cut'"),
    "most": ({"max_sequences_per_block": 0}, "max_sequences_per_block must be"),
    "length_fn": ({"length_fn": None}, "length_fn must be a function, got None"),
    "slice_fn": ({"slice_fn": 3}, "slice_fn must be a function, got 3"),
    "iterable": ({"iterable": 7}, "iterable must be one, such as a DataLoader over samples, got 7"),
}


@pytest.mark.parametrize("name", list(ILLEGAL))
def test_what_is_illegal_on_one_rank_is_told_to_all(ranks: Any, name: str) -> None:
    illegal, said = ILLEGAL[name]

    def on_rank() -> None:
        legal: dict[str, Any] = {"iterable": [], "block_length": BLOCK}
        hva.BLoadStream(**(legal | illegal if hvd.rank() == 1 else legal))

    text = refused_alike(ranks(2), ConfigError, on_rank)
    assert "rank 1" in text
    assert said in text


@pytest.mark.parametrize("name", ["block_length", "batch_size", "open_blocks", "window", "max_sequences_per_block"])
def test_ranks_must_be_given_the_same(ranks: Any, name: str) -> None:
    def on_rank() -> None:
        options = {"block_length": 7} | {name: 5 + hvd.rank() // 2}
        hva.BLoadStream([], **options)

    text = refused_alike(ranks(3), AgreementError, on_rank)
    assert f"{name}: rank 0 has 5, rank 2 has 6; give every rank the same" in text


def test_numbers_of_numpy_are_numbers(ranks: Any) -> None:
    def on_rank() -> Any:
        import numpy as np  # noqa: PLC0415 - tests travel to the ranks, what they import does not

        return taken(hva.BLoadStream(sequences([5] * 4), np.int64(BLOCK), np.int32(2)))[0]

    assert ranks(2).run(on_rank) == [1, 1]


def test_a_rank_that_left_a_loop_early_is_noticed_when_it_comes_back(ranks: Any) -> None:
    def on_rank() -> Any:
        stream = hva.BLoadStream(sequences([12] * 40), BLOCK, window=2)
        if hvd.rank() == 0:
            for number, _ in enumerate(stream):
                if number == 4:
                    break
        with pytest.raises(AgreementError) as caught:
            taken(stream)
        return str(caught.value), taken(stream)[0]

    (said, batches), (also, as_many) = ranks(2).run(on_rank, seconds=SECONDS)
    assert said == also
    assert "loop: rank 0 has 2, rank 1 has 1" in said
    assert "leave a loop over it on all ranks at the same batch, or on none" in said
    assert batches == as_many == 40, "all may begin anew together"


def test_all_ranks_may_leave_a_loop_together(ranks: Any) -> None:
    def on_rank() -> Any:
        stream = hva.BLoadStream(sequences([12] * 40), BLOCK, window=2)
        for number, _ in enumerate(stream):
            if number == 5:
                break
        return taken(stream)[0]

    assert ranks(2).run(on_rank) == [40, 40]


def test_ranks_agree_once_a_window(ranks: Any) -> None:
    def on_rank() -> Any:
        stream = hva.BLoadStream(sequences([12] * 40), BLOCK, batch_size=2, window=5)
        return taken(stream)[0], stream.stats().windows

    # Twenty batches are four windows; that nothing is left is said in a fifth.
    assert ranks(2).run(on_rank) == [(20, 5)] * 2


def test_two_streams_at_once(ranks: Any) -> None:
    def on_rank() -> Any:
        first, second = (hva.BLoadStream(sequences([12] * n), BLOCK, window=2) for n in (20 + hvd.rank(), 7))
        total = 0
        for _ in first:
            total += taken(second)[0]
        return total

    assert ranks(2).run(on_rank) == [21 * 7] * 2


def test_two_streams_may_be_read_in_any_order_by_threads(ranks: Any) -> None:
    """Each has names of its own for what ranks tell each other, so neither hears of the other."""

    def on_rank() -> Any:
        streams = [hva.BLoadStream(sequences([12] * n), BLOCK, window=1) for n in (20, 7)]
        with ThreadPoolExecutor(1) as other:
            later = other.submit(taken, streams[1 - hvd.rank()])
            found = taken(streams[hvd.rank()])[0], later.result()[0]
        return found[::-1] if hvd.rank() else found

    assert ranks(2).run(on_rank, seconds=SECONDS) == [(20, 7)] * 2


def test_an_iterator_serves_for_one_loop(ranks: Any) -> None:
    def on_rank() -> Any:
        stream = hva.BLoadStream(iter(sequences([5] * 6)), BLOCK)
        batches = taken(stream)[0]
        with pytest.raises(ConfigError, match="the iterable is an iterator, which can be read once"):
            taken(stream)
        return batches

    assert ranks(2).run(on_rank) == [3, 3]


def test_an_endless_stream_is_read_as_far_as_needed(ranks: Any) -> None:
    def on_rank() -> Any:
        read = []

        def endless() -> Iterator[torch.Tensor]:
            while True:
                read.append(True)
                yield torch.zeros(12, 3)

        stream = hva.BLoadStream(endless(), BLOCK, batch_size=2, window=3)
        batches = iter(stream)
        for _ in range(30):
            assert len(next(batches)) == 2
        return len(read)

    first, second = ranks(2).run(on_rank)
    assert first == second
    assert 60 <= first <= 60 + 2 * 3 * 2


def test_inside_a_data_loader(ranks: Any) -> None:
    def on_rank() -> Any:
        def collate(batch: Any) -> Any:
            return [torch.cat(packed.samples) for packed in batch]

        own = sequences(some_lengths(50 + 20 * hvd.rank()))
        plain = [collate(batch) for batch in hva.BLoadStream(own, BLOCK, 2)]
        loaded = list(DataLoader(hva.BLoadStream(own, BLOCK, 2), batch_size=None, collate_fn=collate))
        assert [[t.tolist() for t in batch] for batch in loaded] == [[t.tolist() for t in batch] for batch in plain]
        return len(loaded)

    first, second = ranks(2).run(on_rank)
    assert first == second > 10


def test_a_data_loaders_worker_is_refused(ranks: Any) -> None:
    def on_rank() -> None:
        loader = DataLoader(hva.BLoadStream(sequences([5] * 4), BLOCK), batch_size=None, num_workers=1, collate_fn=list)
        next(iter(loader))

    text = refused_alike(ranks(2), ConfigError, on_rank, seconds=30.0)
    assert "give num_workers=0, and the workers to a DataLoader over the source" in text


def test_workers_read_the_source(ranks: Any) -> None:
    def on_rank() -> Any:
        own = sequences(some_lengths(60, seed=hvd.rank()), hvd.rank())
        with_workers = hva.BLoadStream(DataLoader(own, batch_size=None, num_workers=2), BLOCK, 2)
        return taken(with_workers), taken(hva.BLoadStream(own, BLOCK, 2))

    for found, expected in ranks(2).run(on_rank, seconds=90.0):
        assert found == expected


def test_only_some_ranks(ranks: Any) -> None:
    def on_rank() -> Any:
        members = hvd.add_process_set([0, 2])
        try:
            if hvd.rank() == 1:
                with pytest.raises(ConfigError, match="rank 1 is not in its process set"):
                    hva.BLoadStream([], BLOCK, process_set=members)
                return None
            own = sequences(some_lengths(20 * hvd.rank()))  # none on rank 0
            return taken(hva.BLoadStream(own, BLOCK, process_set=members))[0]
        finally:
            hvd.remove_process_set(members)

    first, none, last = ranks(3).run(on_rank)
    assert first == last > 10
    assert none is None


def test_samples_with_several_parts(ranks: Any) -> None:
    """The rank without any sample learns from the other how they look."""

    def on_rank() -> Any:
        frames = [{"x": x, "y": x[:, 0], "name": "a"} for x in sequences([5, 20, 3])] if hvd.rank() else []
        stream = hva.BLoadStream(frames, BLOCK, length_fn=lambda sample: len(sample["x"]), overlong="split")
        return [
            [(tuple(sample["x"].shape), sample["y"].tolist(), sample["name"]) for sample in packed.samples]
            for batch in stream
            for packed in batch
        ]

    empty, full = ranks(2).run(on_rank)
    assert full == [
        [((12, 3), [0.0] * 12, "a")],
        [((8, 3), [0.0] * 8, "a"), ((3, 3), [0.0] * 3, "a")],
        [((5, 3), [0.0] * 5, "a")],
    ] or full[0] == [((12, 3), [0.0] * 12, "a")]
    assert empty == [[((0, 3), [], "a")]] * len(full)


def test_what_cannot_be_shared_is_told_to_all(ranks: Any) -> None:
    def on_rank() -> None:
        samples = [(torch.zeros(4), (n for n in range(3)))] if hvd.rank() else []
        taken(hva.BLoadStream(samples, BLOCK, length_fn=lambda sample: len(sample[0])))

    text = refused_alike(ranks(2), SourceError, on_rank)
    assert "rank 1: TypeError: cannot pickle 'generator' object" in text


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_read_where_it_is_sent_is_told_to_all(ranks: Any) -> None:
    def on_rank() -> None:
        samples = [(torch.zeros(4), Unreadable())] if hvd.rank() else []
        taken(hva.BLoadStream(samples, BLOCK, length_fn=lambda sample: len(sample[0])))

    text = refused_alike(ranks(2), SourceError, on_rank)
    assert "rank 0: how samples look cannot be unpickled here: ValueError: " in text


def test_how_samples_look_is_all_that_is_sent() -> None:
    """A tensor of no elements may be a view of a large one."""
    look = {"x": torch.ones(100_000, 3, dtype=torch.float16)[:0], "name": "a"}
    sent = _pickled(look)
    assert len(sent) < 1000
    found = pickle.loads(sent)  # noqa: S301 - made here
    assert (tuple(found["x"].shape), found["x"].dtype, found["name"]) == ((0, 3), torch.float16, "a")


def test_a_process_sets_ranks_are_named_as_horovod_numbers_them(ranks: Any) -> None:
    def on_rank() -> Any:
        members = hvd.add_process_set([0, 2])
        try:
            if members.included():
                own = Failing(3, OSError("disk gone")) if hvd.rank() else sequences([5] * 3)
                with pytest.raises(SourceError, match=r"^BLoadStream: rank 2: ") as caught:
                    taken(hva.BLoadStream(own, BLOCK, process_set=members))
                with pytest.raises(AgreementError, match="block_length: rank 0 has 4, rank 2 has 6"):
                    hva.BLoadStream(own, 4 + hvd.rank(), process_set=members)
                return str(caught.value)
            return None
        finally:
            hvd.remove_process_set(members)

    first, none, last = ranks(3).run(on_rank)
    assert first == last
    assert none is None
