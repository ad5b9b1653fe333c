"""What each rank is given, on real ranks, against the data set."""

import itertools
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from packers import whole
from rank_pool import RankPool
from tensors import SKEWED, entries, numbered, spread

import hvd_adaptive.tensorflow.bload as hva
from hvd_adaptive import ConfigError
from hvd_adaptive.bload import POLICIES, pack

SETS: dict[str, Any] = {"skewed": SKEWED, "ones": [1] * 30, "one": [40], "array": np.arange(1, 41)}


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", SETS)
def test_equal_batches_whose_union_is_the_data_set(ranks: Any, kind: str, size: int) -> None:
    lengths = SETS[kind]
    cases = list(itertools.product(POLICIES, [1, 2], [3]))

    def on_rank() -> Any:
        found = []
        for policy, batch_size, epoch in cases:
            data = hva.bload_dataset(numbered(lengths), lengths, 41, batch_size, policy, num_parallel_calls=2)
            data.set_epoch(epoch)
            expected = (data.steps, data.split, data.empty, data.filled.tolist())
            batches = list(data)
            shapes = {str(tf.nest.map_structure(lambda x: (x.shape, x.dtype), batch)) for batch in batches}
            assert len(shapes) == 1
            assert tf.nest.map_structure(tf.TensorSpec.from_tensor, batches[0]) == data.element_spec
            assert (data.rank, data.num_replicas, data.batch_size, data.block_length) == (hvd.rank(), hvd.size(), batch_size, 41)
            found.append((entries(batches), [int(batch.total) for batch in batches], shapes, *expected))
        return found

    answers = ranks(size).run(on_rank)
    for (policy, batch_size, epoch), *of_ranks in zip(cases, *answers, strict=True):
        given = [batches for batches, *_ in of_ranks]
        assert {len(batches) for batches in given} == {steps for *_, steps, _, _, _ in of_ranks}
        assert len({str(shapes) for _, _, shapes, *_ in of_ranks}) == 1
        assert spread(*given) == whole([int(length) for length in lengths])
        blocks = pack(lengths, 41, policy, epoch=epoch)
        for rank, (batches, totals, _, _, split, empty, filled) in enumerate(of_ranks):
            shard = blocks.shard(rank, size, batch_size)
            assert [[[i for i, *_ in block] for block in batch] for batch in batches] == [
                [shard.blocks[int(b)].ids.tolist() for b in batch] for batch in shard
            ]
            assert (split, empty) == (shard.split, shard.empty)
            counts = [
                [sum(b - a for block in batches[step] for _, a, b in block) for batches in given] for step in range(len(batches))
            ]
            assert filled == counts
            assert totals == [sum(row) for row in counts]


def test_what_was_overlong_is_counted_and_kept(ranks: Any) -> None:
    lengths = [5, 23, 9]

    def on_rank() -> Any:
        found = []
        for overlong in ("split", "truncate", "drop"):
            data = hva.bload_dataset(numbered(lengths), lengths, 10, overlong=overlong)
            found.append((entries(data), data.blocks.overlong, data.blocks.deleted))
        return found

    first, second = ranks(2).run(on_rank)
    together = [spread(mine[0], other[0]) for mine, other in zip(first, second, strict=True)]
    assert together == [
        {0: [(0, 5)], 1: [(0, 10), (10, 20), (20, 23)], 2: [(0, 9)]},
        {0: [(0, 5)], 1: [(0, 10)], 2: [(0, 9)]},
        {0: [(0, 5)], 2: [(0, 9)]},
    ]
    assert [counts[1:] for counts in first] == [(1, 0), (1, 13), (1, 23)]


def test_no_block_holds_more_than_asked(ranks: Any) -> None:
    def on_rank() -> Any:
        data = hva.bload_dataset(numbered(SKEWED), SKEWED, max_sequences_per_block=2)
        return entries(data), data.element_spec.starts.shape.as_list()

    (first, shape), (second, _) = ranks(2).run(on_rank)
    assert spread(first, second) == whole(SKEWED)
    assert shape == [1, 2]
    assert max(len(block) for batch in first + second for block in batch) == 2


def test_a_function_of_a_graph_is_traced_once(ranks: Any) -> None:
    def on_rank() -> int:
        data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41, policy="random")
        traced = []

        @tf.function
        def step(batch: Any) -> Any:
            traced.append(1)
            return tf.reduce_sum(batch.targets)

        for _ in range(3):
            for batch in data:
                step(batch)
        assert data.epoch == 3
        return len(traced)

    assert ranks(2).run(on_rank) == [1, 1]


def test_samples_of_any_structure(ranks: Any) -> None:
    """One sequence of three elements in a block of four: what becomes of it can be written down."""

    def on_rank() -> None:
        x = np.array([1, 2, 3], np.int16)

        def first(sample: Any, **options: Any) -> Any:
            (batch,) = hva.bload_dataset([sample], [3], 4, **options)
            return batch

        def plain(nested: Any) -> Any:
            return tf.nest.map_structure(lambda t: (t.dtype.name, t.numpy().tolist()), nested)

        row, pair = ("int16", [[1, 2, 3, 0]]), ("float64", [[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [0.0, 0.0]]])
        wide = np.stack([x, x], 1).astype(np.float64)
        alone = first(x)
        assert (plain(alone.data), alone.targets) == (row, None)
        assert plain(first((x,)).data) == (row,)
        assert [plain(part) for part in first((wide, x))[:2]] == [pair, row]
        assert [plain(part) for part in first([wide, x, x])[:2]] == [(pair, row), row]
        assert [plain(part) for part in first({"a": wide, "b": (x,), "y": x}, targets="y")[:2]] == [{"a": pair, "b": (row,)}, row]
        assert plain(first({"a": x}).data) == {"a": row}
        assert plain(first(tf.constant(x)).data) == row
        assert plain(first(tf.constant([True, True, True])).data) == ("bool", [[True, True, True, False]])
        assert plain(first(tf.cast(x, tf.bfloat16)).data)[0] == "bfloat16"
        assert plain(first(np.array([1, 2, 3], ">i2")).data) == row
        padded = first((x, x), padding=7, target_padding=-100)
        assert [plain(part)[1] for part in padded[:2]] == [[[1, 2, 3, 7]], [[1, 2, 3, -100]]]

    ranks(1).run(on_rank)


def test_only_the_ranks_of_a_process_set_share_the_epoch() -> None:
    pool = RankPool(3, framework="tensorflow")  # of its own, because it is left with a process set

    def on_rank() -> Any:
        members = hvd.add_process_set([0, 2])
        try:
            data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41, process_set=members)
        except ConfigError as error:
            return str(error)
        return entries(data), data.rank, data.num_replicas

    try:
        (first, *place), said, (last, *other) = pool.run(on_rank)
    finally:
        pool.close()
    assert spread(first, last) == whole(SKEWED)
    assert (place, other) == ([0, 2], [1, 2])
    assert said == "bload_dataset: rank 1 is not in its process set, which holds ranks [0, 2]; call it on those only"


def test_horovod_must_be_initialised() -> None:
    """As it is not in the process that runs the tests."""
    with pytest.raises(ConfigError, match=r"call hvd.init\(\) first"):
        hva.bload_dataset([np.zeros(3)], [3])
