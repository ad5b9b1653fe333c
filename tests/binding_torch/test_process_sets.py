"""Compression among some of the ranks only."""

import contextlib
from collections.abc import Iterator
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from rank_pool import RankPool
from training import attempt_soon, building, flat, model, optimizer_for, train

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError, Identity, RandomK, TopK

MEMBERS = [0, 2]
STEPS = 3
SCOPES = list(hva.SCOPES)


@pytest.fixture(scope="module")
def three_ranks() -> Iterator[RankPool]:
    """Ranks of their own, because they are left with collectives that some of them never join."""
    pool = RankPool(3)
    yield pool
    pool.close()


class Among:
    """A process set for as long as the block runs; made and unmade by all ranks together."""

    def __init__(self, members: list[int]) -> None:
        self._members = members

    def __enter__(self) -> Any:
        self._set = hvd.add_process_set(self._members)
        return self._set

    def __exit__(self, *error: object) -> None:
        hvd.remove_process_set(self._set)


def end(compress: Any, process_set: Any, **options: Any) -> torch.Tensor:
    module = model().double()
    compression = None if compress is None else compress(module)
    train(module, optimizer_for(module, compression, process_set=process_set, **options), STEPS)
    return flat(module)


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("scope", SCOPES)
def test_factor_1_equals_stock_horovod_on_the_same_set(ranks: Any, scope: str, op: str) -> None:
    """Rank 1 runs the same script, and so trains alone."""

    def on_rank() -> list[float]:
        with Among(MEMBERS) as members:
            stock = end(None, members, op=getattr(hvd, op))
            assert (stock - flat(model().double())).abs().max() > 1e-3
            found = []
            for compressor in (TopK(1), Identity(), RandomK(1)):
                ours = end(building(scope, compressor, process_set=members), members, op=getattr(hvd, op))
                found.append(float((stock - ours).abs().max()))
            return found

    for found in ranks(3).run(on_rank):
        assert max(found) <= 1e-12


@pytest.mark.parametrize("compressor", [TopK(20), RandomK(20)], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_members_stay_identical_and_others_train_alone(ranks: Any, scope: str, compressor: Any) -> None:
    def on_rank() -> Any:
        with Among(MEMBERS) as members:
            ours = end(building(scope, compressor, process_set=members), members)
            module = model().double()
            train(module, torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9), STEPS)
            return ours, flat(module)

    (first, _), (outside, alone), (last, _) = ranks(3).run(on_rank)
    assert torch.equal(first, last)
    assert torch.equal(outside, alone)
    assert not torch.equal(first, outside)


@pytest.mark.parametrize("scope", SCOPES)
def test_ranks_outside_need_not_build_anything(ranks: Any, scope: str) -> None:
    def on_rank() -> Any:
        with Among(MEMBERS) as members:
            return end(building(scope, TopK(20), process_set=members), members) if hvd.rank() != 1 else None

    first, nothing, last = ranks(3).run(on_rank)
    assert nothing is None
    assert torch.equal(first, last)


def test_stats_and_state_of_ranks_inside_and_outside(ranks: Any) -> None:
    def on_rank() -> Any:
        with Among(MEMBERS) as members:
            module = model()
            compression = building("layer-wise", TopK(20), process_set=members)(module)
            optimizer = optimizer_for(module, compression, process_set=members)
            train(module, optimizer, STEPS)
            state = compression.state_dict()
            again = building("layer-wise", TopK(20), process_set=members)(module)
            again.load_state_dict(state)
            return compression.stats(), state["steps"], again.state_dict()["steps"]

    inside, outside, last = ranks(3).run(on_rank)
    assert [(stats.ranks, stats.steps, steps, loaded, stats.note) for stats, steps, loaded in (inside, last)] == [
        (2, STEPS, STEPS, STEPS, "")
    ] * 2
    stats, steps, loaded = outside
    assert (stats.steps, stats.bytes_sent, steps, loaded) == (0, 0, 0, 0)
    assert "not in the process set" in stats.note


@pytest.mark.parametrize("scope", SCOPES)
def test_a_set_of_one_rank(ranks: Any, scope: str) -> None:
    """Horovod does call compression here, unlike in a run of one rank."""

    def on_rank() -> Any:
        with Among([1]) as alone:
            module = model().double()
            compression = building(scope, TopK(1), process_set=alone)(module)
            train(module, optimizer_for(module, compression, process_set=alone), STEPS)
            return flat(module), end(None, alone), compression.stats()

    ours, stock, stats = ranks(3).run(on_rank)[1]
    assert (ours - stock).abs().max() <= 1e-12
    assert stats.steps == STEPS
    assert "nothing was compressed" not in stats.note


def test_two_sets_train_side_by_side(ranks: Any) -> None:
    def on_rank() -> Any:
        with Among([0, 1]) as left, Among([2]) as right:
            mine = right if hvd.rank() == 2 else left
            return end(building("entire-model", TopK(20), process_set=mine), mine)

    first, second, third = ranks(3).run(on_rank, seconds=20)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_ranks_that_built_different_numbers_of_objects_meet(ranks: Any) -> None:
    """Horovod gives a new set the number of a removed one, of which rank 1 was no member."""

    def on_rank() -> bool:
        numbers: list[set[int]] = []
        for members in ([0, 2], [0, 1]):
            numbers.append(set())
            for _ in range(4):  # Horovod takes turns among the numbers that are free
                with Among(members) as process_set:
                    numbers[-1].add(process_set.process_set_id)
                    if hvd.rank() in members:
                        building("entire-model", TopK(20), process_set=process_set)(model())
        return bool(numbers[0] & numbers[1])

    assert ranks(3).run(on_rank, seconds=20) == [True] * 3


MISMATCHES = [
    pytest.param([0, 1, 2], [0, 2], id="compression wider"),
    pytest.param([0, 2], [0, 1, 2], id="optimizer wider"),
    pytest.param([0, 1], [0, 2], id="overlapping"),
    pytest.param([1], [0, 2], id="disjoint"),
]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("compressing", "optimizing"), MISMATCHES)
def test_different_sets_are_refused(three_ranks: RankPool, scope: str, compressing: list[int], optimizing: list[int]) -> None:
    def on_rank() -> None:
        with contextlib.ExitStack() as stack:

            def among(members: list[int]) -> Any:
                return hvd.global_process_set if len(members) == 3 else stack.enter_context(Among(members))

            sets = [among(compressing), among(optimizing)]
            module = model()
            compression = building(scope, TopK(10), process_set=sets[0])(module)
            train(module, optimizer_for(module, compression, process_set=sets[1]), 1)

    answers = attempt_soon(three_ranks, on_rank)
    for rank, answer in enumerate(answers):
        if rank in optimizing:
            assert isinstance(answer, ConfigError), answer
            assert "process_set=" in str(answer)
        else:
            assert answer is None


@pytest.mark.parametrize("compressor", [RandomK(1), Identity()], ids=str)
def test_what_rides_on_the_optimizers_allreduce_follows_its_set(ranks: Any, compressor: Any) -> None:
    """Nothing of its own is sent, so there is nothing that another set could spoil."""

    def on_rank() -> Any:
        with Among(MEMBERS) as members:
            ours = end(building("layer-wise", compressor, exchange="reduce"), members)
            return float((ours - end(None, members)).abs().max())

    assert max(ranks(3).run(on_rank, seconds=20)) <= 1e-12


@pytest.mark.parametrize("compressor", [RandomK(1), Identity()], ids=str)
def test_a_rank_outside_is_refused_though_all_rides(three_ranks: RankPool, compressor: Any) -> None:
    def on_rank() -> None:
        with Among(MEMBERS) as members:
            module = model()
            compression = building("layer-wise", compressor, exchange="reduce", process_set=members)(module)
            train(module, optimizer_for(module, compression), 1)

    first, outside, last = attempt_soon(three_ranks, on_rank)
    assert isinstance(outside, ConfigError), outside
    assert "process_set=" in str(outside)
    assert first is last is None


@pytest.mark.parametrize("scope", SCOPES)
def test_a_set_that_horovod_does_not_know_is_refused(ranks: Any, scope: str) -> None:
    def on_rank() -> None:
        building(scope, TopK(10), process_set=hvd.ProcessSet([0, 2]))(model())

    for error in attempt_soon(ranks(3), on_rank):
        assert isinstance(error, ConfigError)
        assert "hvd.add_process_set()" in str(error)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_set_that_was_removed_is_refused(ranks: Any, scope: str) -> None:
    def on_rank() -> None:
        with Among(MEMBERS) as members:
            pass
        building(scope, TopK(10), process_set=members)(model())

    for error in attempt_soon(ranks(3), on_rank):
        assert isinstance(error, ConfigError)
        assert "hvd.add_process_set()" in str(error)
