"""Loopback against numpy on the arrays of all ranks, and against the rules that Horovod's collectives have."""

import threading
import time
from typing import get_args

import numpy as np
import pytest

from hvd_adaptive import ConfigError, UnsupportedError
from hvd_adaptive.collective import GATHERABLE, REDUCIBLE, Kind, Loopback
from hvd_adaptive.ops.numpy_ops import NumpyOps

SIZES = [1, 2, 3, 8, 64]
every_size = pytest.mark.parametrize("size", SIZES)


def per_rank(size, dtype="float64", n=5):
    return [np.random.default_rng(rank).integers(-100, 100, n).astype(dtype) for rank in range(size)]


def together(ops, size, function, timeout=10.0):
    """``function(collective, its own rank)`` on every rank."""
    return Loopback(size, ops, timeout).run(lambda collective: function(collective, collective.rank))


@every_size
def test_each_rank_knows_its_place(ops, size):
    assert together(ops, size, lambda collective, rank: (rank, collective.size)) == [(rank, size) for rank in range(size)]


@every_size
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_mean_is_numpys(ops, size, dtype):
    arrays = per_rank(size, dtype)
    results = together(ops, size, lambda c, rank: ops.to_numpy(c.wait(c.start("mean", ops.from_numpy(arrays[rank]), "x"))))
    expected = np.mean(np.stack(arrays).astype(np.float64), axis=0)
    assert all(result.dtype == dtype for result in results)
    assert len({result.tobytes() for result in results}) == 1
    np.testing.assert_allclose(results[0], expected, rtol=2 * float(np.finfo(dtype).eps), atol=0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_mean_of_integers_rounds_down(ops, dtype):
    """Horovod divides as integers: the mean of 1 and 2 is 1."""
    arrays = [np.array([1, 4, 10], dtype), np.array([2, 4, -3], dtype)]
    results = together(ops, 2, lambda c, rank: ops.to_numpy(c.wait(c.start("mean", ops.from_numpy(arrays[rank]), "x"))))
    for result in results:
        assert result.dtype == dtype
        assert result.tolist() == [1, 4, 3]


@every_size
@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float16", "float32", "float64"])
def test_a_sum_and_a_maximum_are_numpys(ops, size, kind, dtype):
    """Whole numbers whose sums are exact in every dtype."""
    arrays = [a // 4 for a in per_rank(size, dtype)]
    results = together(ops, size, lambda c, rank: ops.to_numpy(c.wait(c.start(kind, ops.from_numpy(arrays[rank]), "x"))))
    stacked = np.stack(arrays).astype(np.int64)
    expected = stacked.sum(0) if kind == "sum" else stacked.max(0)
    for result in results:
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", ["mean", "sum", "max", "gather", "alltoall"])
@every_size
def test_vectors_without_elements_travel_too(ops, size, kind):
    splits = (0,) * size if kind == "alltoall" else ()
    nothing = np.zeros(0, np.float32)
    results = together(ops, size, lambda c, _: ops.to_numpy(c.wait(c.start(kind, ops.from_numpy(nothing), "x", splits))))
    assert all((result.dtype, result.size) == (np.float32, 0) for result in results)


def _lengths(cut, size):
    """How many elements go from each rank (first index) to each."""
    source, target = np.indices((size, size))
    return {
        "equal": np.full((size, size), 2),
        "different": (3 * source + 5 * target) % 4,  # some of them nothing
        "to the last only": 3 * (target == size - 1),
        "from the first only": 2 * (source == 0),
    }[cut].tolist()


@every_size
@pytest.mark.parametrize("cut", ["equal", "different", "to the last only", "from the first only"])
def test_alltoall_brings_the_pieces_meant_for_a_rank_in_rank_order(ops, size, cut):
    """Every element tells where it comes from, where it goes, and its place in the piece."""
    splits = _lengths(cut, size)

    def piece(source, target):
        return [1e6 * source + 1e3 * target + place for place in range(splits[source][target])]

    def step(collective, rank):
        x = ops.from_numpy(np.array([value for target in range(size) for value in piece(rank, target)], np.float64))
        return ops.to_numpy(collective.wait(collective.start("alltoall", x, "x", tuple(splits[rank])))).tolist()

    assert together(ops, size, step) == [[v for source in range(size) for v in piece(source, rank)] for rank in range(size)]


@pytest.mark.parametrize("splits", [(), (4,), (2, 1), (3, 2), (2, 2, 0), (1, 1, 1, 1)])
def test_splits_that_do_not_cut_the_vector_are_refused(ops, splits):
    with pytest.raises(ConfigError) as raised:
        together(ops, 2, lambda c, _: c.wait(c.start("alltoall", ops.from_numpy(np.ones(4)), "grad", splits)))
    assert str(raised.value) == f"alltoall 'grad': splits {splits} do not cut 4 elements for 2 ranks"


@every_size
@pytest.mark.parametrize("lengths", ["equal", "different", "empty but one", "all empty"])
def test_a_gather_is_the_concatenation_in_rank_order(ops, size, lengths):
    counts = {
        "equal": [3] * size,
        "different": [rank % 5 for rank in range(size)],
        "empty but one": [0] * (size - 1) + [2],
        "all empty": [0] * size,
    }[lengths]
    arrays = [np.full(counts[rank], rank + 1, np.int16) for rank in range(size)]
    results = together(ops, size, lambda c, rank: ops.to_numpy(c.wait(c.start("gather", ops.from_numpy(arrays[rank]), "x"))))
    expected = [rank + 1 for rank in range(size) for _ in range(counts[rank])]
    assert all(result.dtype == np.int16 and result.tolist() == expected for result in results)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("kind", list(get_args(Kind)))
def test_takes_what_horovod_takes_and_refuses_the_rest(ops, kind, dtype):
    """Horovod 0.28.1 for torch reduces int32, int64 and floats of 16 to 64 bits; it gathers bytes and shorts too."""
    joins = kind in ("gather", "alltoall")
    taken = dtype in ("int32", "int64", "float16", "float32", "float64") or (joins and dtype in ("uint8", "int8", "int16"))
    assert (dtype in (GATHERABLE if joins else REDUCIBLE)) == taken
    splits = (1, 1) if kind == "alltoall" else ()

    def step(collective):
        return ops.to_numpy(collective.wait(collective.start(kind, ops.from_numpy(np.array([2, 4], dtype)), "grad.3", splits)))

    if taken:
        expected = {
            "mean": [[2, 4]] * 2,
            "sum": [[4, 8]] * 2,
            "max": [[2, 4]] * 2,
            "gather": [[2, 4, 2, 4]] * 2,
            "alltoall": [[2, 2], [4, 4]],
        }
        found = Loopback(2, ops, timeout=10).run(step)
        assert [r.tolist() for r in found] == expected[kind]
        assert all(r.dtype == dtype for r in found)
    else:
        with pytest.raises(UnsupportedError, match=rf"{kind} takes int32, .*float64, got {dtype} for 'grad\.3'"):
            Loopback(2, ops, timeout=10).run(step)


@pytest.mark.parametrize("dtype", ["bool", "uint16", "complex64"])
def test_refuses_what_horovod_has_no_type_for(dtype):
    with pytest.raises(UnsupportedError, match=f"got {dtype}"):
        Loopback(2, NumpyOps()).run(lambda collective: collective.start("gather", np.ones(2, dtype), "x"))


def test_several_collectives_may_be_under_way_and_be_waited_for_in_any_order(ops):
    """Each rank its own order, for what counts is the name; a mean and a gather may share one."""

    def step(collective, rank):
        order = [0, 1, 2, 3] if rank % 2 else [2, 0, 3, 1]
        handles = {i: collective.start("mean", ops.from_numpy(np.array([float(i + rank)])), f"x{i}") for i in order}
        gathered = collective.start("gather", ops.from_numpy(np.array([float(rank)])), "x0")
        means = {i: float(collective.wait(handles[i])[0]) for i in reversed(order)}
        return means, ops.to_numpy(collective.wait(gathered)).tolist()

    for means, gathered in together(ops, 4, step):
        assert means == {0: 1.5, 1: 2.5, 2: 3.5, 3: 4.5}
        assert gathered == [0, 1, 2, 3]


def test_a_name_is_free_again_for_a_rank_that_is_done_though_others_are_not(ops):
    """As in Horovod. Rank 1 looks at the first result only when rank 0 has started the second."""
    started_again = threading.Event()

    def step(collective, rank):
        means = []
        for value in (1.0, 10.0):
            handle = collective.start("mean", ops.from_numpy(np.array([value * (1 + rank)])), "grad")
            if rank == 0 and means:
                started_again.set()
            if rank == 1 and not means:
                started_again.wait(2)
            means.append(float(collective.wait(handle)[0]))
        return means

    assert together(ops, 2, step) == [[1.5, 15.0]] * 2


@pytest.mark.parametrize("kind", ["mean", "sum", "max", "gather", "alltoall"])
def test_an_array_may_be_overwritten_once_its_collective_is_done(ops, kind):
    """Rank 1 looks late; what it gets is what was sent, not what rank 0 wrote into its buffer afterwards."""
    overwritten = threading.Event()

    def step(collective, rank):
        x = ops.from_numpy(np.array([2.0 + 4 * rank]))
        handle = collective.start(kind, x, "grad", (0, 1) if kind == "alltoall" else ())
        if rank == 1:
            overwritten.wait(2)
        result = ops.to_numpy(collective.wait(handle)).tolist()
        x[0] = -1000.0
        overwritten.set()
        return result

    both = {"mean": [4.0], "sum": [8.0], "max": [6.0], "gather": [2.0, 6.0], "alltoall": [2.0, 6.0]}[kind]
    assert together(ops, 2, step) == [[] if kind == "alltoall" else both, both]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", ["mean", "sum", "max", "gather", "alltoall"])
def test_a_result_belongs_to_its_rank(ops, size, kind):
    """Writing into it changes neither what was sent nor what others receive."""
    barrier = threading.Barrier(size)

    def step(collective, rank):
        x = ops.from_numpy(np.full(size, 3.0))
        result = collective.wait(collective.start(kind, x, "grad", (1,) * size if kind == "alltoall" else ()))
        barrier.wait(5)
        result[:] = float(rank) - 50
        barrier.wait(5)
        return ops.to_numpy(x).tolist(), set(ops.to_numpy(result).tolist())

    assert together(ops, size, step) == [([3.0] * size, {rank - 50.0}) for rank in range(size)]


def test_ranks_that_send_different_lengths_or_dtypes_to_a_mean_are_told(ops):
    for other in (np.ones(4, np.float32), np.ones(3, np.float64)):
        arrays = [np.ones(3, np.float32), other]
        with pytest.raises(ConfigError, match=r"mean 'grad': ranks disagree on length and dtype: .*\(3, 'float32'\)"):
            together(ops, 2, lambda c, rank, arrays=arrays: c.wait(c.start("mean", ops.from_numpy(arrays[rank]), "grad")))


def test_starting_a_collective_twice_is_refused(ops):
    def step(collective, rank):
        if rank == 1:
            collective.start("mean", ops.from_numpy(np.ones(1)), "grad")
            collective.start("mean", ops.from_numpy(np.ones(1)), "grad")

    with pytest.raises(ConfigError, match="rank 1 started mean 'grad' twice before it was done"):
        together(ops, 2, step)


def test_a_rank_that_raises_releases_the_others_and_its_error_is_the_one_seen(ops):
    """Long before the timeout, and though the ranks that were released have lower numbers."""
    released = []

    def step(collective, rank):
        if rank == 2:
            raise KeyError("what went wrong")
        try:
            collective.wait(collective.start("mean", ops.from_numpy(np.ones(1)), "grad"))
        except RuntimeError as error:
            released.append(str(error))
            raise

    start = time.monotonic()
    with pytest.raises(KeyError, match="what went wrong"):
        together(ops, 4, step, timeout=60)
    assert time.monotonic() - start < 20
    assert sorted(released) == [f"mean 'grad' on rank {rank}: another rank failed" for rank in (0, 1, 3)]


def test_of_several_errors_the_lowest_ranks_is_seen(ops):
    def step(collective, rank):
        raise ValueError(f"rank {rank}")

    with pytest.raises(ValueError, match="rank 0"):
        together(ops, 5, step)


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_rank_that_never_comes_is_named(ops, late):
    """Whoever waits first times out first, and then the others are released; the reason must survive that."""
    both_started = threading.Barrier(2)

    def step(collective, rank):
        if rank == late:
            return
        handle = collective.start("gather", ops.from_numpy(np.ones(1)), "grad")
        both_started.wait(10)
        if rank == min({0, 1, 2} - {late}):
            time.sleep(0.1)  # the lower rank is the last to begin waiting
        collective.wait(handle)

    with pytest.raises((RuntimeError, TimeoutError), match=rf"gather 'grad' on rank \d: ranks \[{late}\] never came"):
        together(ops, 3, step, timeout=0.2)


def test_ranks_that_start_different_collectives_do_not_hang(ops):
    def step(collective, rank):
        kind = "mean" if rank == 0 else "gather"
        collective.wait(collective.start(kind, ops.from_numpy(np.ones(1)), "grad"))

    with pytest.raises((RuntimeError, TimeoutError), match="never came"):
        together(ops, 2, step, timeout=0.2)


def test_may_be_used_again_after_success_and_after_failure(ops):
    world = Loopback(3, ops, timeout=10)

    def fails(collective):
        if collective.rank == 1:
            raise ValueError("no")
        collective.wait(collective.start("mean", ops.from_numpy(np.ones(1)), "grad"))

    def works(collective):
        return float(collective.wait(collective.start("mean", ops.from_numpy(np.array([float(collective.rank)])), "grad"))[0])

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            world.run(fails)
        assert world.run(works) == [1.0] * 3
        assert world.run(works) == [1.0] * 3


@pytest.mark.parametrize("size", [0, -1])
def test_refuses_a_world_of_nobody(ops, size):
    with pytest.raises(ConfigError, match=f"size must be at least 1, got {size}"):
        Loopback(size, ops)
