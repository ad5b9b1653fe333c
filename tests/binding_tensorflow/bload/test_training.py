"""Losses, attention and gradients over packed blocks, against the same sequences one by one in one process."""

from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensors import SKEWED

import hvd_adaptive.tensorflow.bload as hva
from hvd_adaptive import ConfigError

FLOAT64 = 1e-12
"""Of gradients and losses up to 10 in float64: the orders of additions differ, nothing else."""
FLOAT32 = 1e-5
"""As Keras computes in float32."""


def samples(lengths: Any) -> list[Any]:
    """Data f64[t, 3] and classes i64[t], the same in every process."""
    found = []
    for index, length in enumerate(lengths):
        random = np.random.default_rng(index)
        found.append((random.standard_normal((length, 3)), random.integers(0, 4, length)))
    return found


def own(rank: int, dtype: Any = tf.float32) -> Any:
    """Rank r has r valid elements of 3, valued 10, 11, ...; the others are not finite."""
    valid = tf.range(3) < rank
    return tf.Variable(tf.where(valid, tf.constant([10.0, 11.0, np.inf], dtype), tf.constant(np.nan, dtype))), valid


@pytest.mark.parametrize("total", ["none", "number", "tensor"])
def test_the_mean_over_ranks_is_that_over_all_elements(ranks: Any, total: str) -> None:
    def on_rank() -> Any:
        known = {"none": None, "number": 3, "tensor": tf.constant(3, tf.int64)}[total]
        losses, valid = own(hvd.rank())

        def graded() -> Any:
            with tf.GradientTape() as tape:
                loss = hva.valid_mean(losses, valid, total=known)
            return loss, tape.gradient(loss, losses)

        found = [[x.numpy().tolist() for x in run()] for run in (graded, tf.function(graded))]
        assert found[0] == found[1]
        nothing = hva.valid_mean(losses, tf.zeros(3, tf.bool), total=known and 0)
        return *found[0], float(nothing)

    answers = ranks(3).run(on_rank)
    # 10 on rank 1, 10 and 11 on rank 2: the mean of three, which each rank's part adds to by a third of itself.
    assert [round(loss, 5) for loss, *_ in answers] == [0, 10, 21]
    assert [gradient for _, gradient, _ in answers] == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert [nothing for *_, nothing in answers] == [0, 0, 0]


def test_losses_of_16_bits_do_not_overflow(ranks: Any) -> None:
    """Their sum and number are beyond the largest of 16 bits, 65,504."""

    def on_rank() -> Any:
        losses = tf.fill([100_000], tf.constant(3.0, tf.float16))
        valid = tf.ones(100_000, tf.bool)
        return float(hva.valid_mean(losses, valid)), float(hva.valid_mean(losses, valid, total=200_000))

    assert ranks(2).run(on_rank) == [(3.0, 3.0)] * 2


def attention(data: Any, weights: Any, mask: Any) -> Any:
    """One head of softmax attention over ``data f64[b, T, 3]``, and 4 classes."""
    scores = tf.where(mask, data @ weights @ tf.linalg.matrix_transpose(data), tf.constant(-np.inf, tf.float64))
    return tf.nn.softmax(scores) @ data @ tf.concat([weights, weights[:, :1]], 1)


def cross_entropy(targets: Any, logits: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)


def weights() -> Any:
    return tf.Variable(np.random.default_rng(7).standard_normal((3, 3)))


def alone(chosen: list[Any]) -> Any:
    """Mean loss over all elements of sequences that never meet, and its gradient."""
    variable = weights()
    with tf.GradientTape() as tape:
        losses = []
        for data, targets in chosen:
            causal = np.tril(np.ones((len(data), len(data)), bool))
            losses.append(cross_entropy(targets, attention(tf.constant(data)[None], variable, causal)[0]))
        loss = tf.reduce_mean(tf.concat(losses, 0))
    return float(loss), tape.gradient(loss, variable).numpy()


@pytest.mark.parametrize("size", [2, 3])
def test_each_step_is_that_of_one_process_with_all_sequences(ranks: Any, size: int) -> None:
    def on_rank() -> Any:
        data, variable = hva.bload_dataset(samples(SKEWED), SKEWED, batch_size=2), weights()

        @tf.function
        def step(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                mask = hva.block_attention_mask(batch.segment_ids, causal=True)
                losses = cross_entropy(batch.targets, attention(batch.data, variable, mask))
                loss = hva.valid_mean(losses, batch.valid, total=batch.total)
            (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [variable])
            return hvd.allreduce(loss, op=hvd.Average, name="loss"), gradient

        found = []
        for batch in data:
            loss, gradient = step(batch)
            found.append(([int(i) for i in batch.blocks.ids.numpy().ravel() if i >= 0], float(loss), gradient.numpy()))
        return found

    answers = ranks(size).run(on_rank)
    together = samples(SKEWED)
    assert len(answers[0]) >= 1
    for steps in zip(*answers, strict=True):
        loss, gradient = alone([together[i] for ids, *_ in steps for i in ids])
        for _, found, slope in steps:
            assert abs(found - loss) <= FLOAT64
            assert np.abs(slope - gradient).max() <= FLOAT64
        assert np.abs(gradient).max() > 1e-2


def test_keras_mean_loss_is_that_over_all_elements_of_all_ranks(ranks: Any) -> None:
    def on_rank() -> Any:
        data = hva.bload_dataset(samples(SKEWED), SKEWED, batch_size=2, keras_inputs=["data", "segment_ids"])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        found = []
        for x, y, weight in data:
            mask = hva.block_attention_mask(x["segment_ids"], causal=True)
            found.append(float(loss(y, tf.cast(attention(x["data"], weights(), mask), tf.float32), weight)))
        ids = [
            [int(i) for i in batch.blocks.ids.numpy().ravel() if i >= 0]
            for batch in hva.bload_dataset(samples(SKEWED), SKEWED, None, 2)
        ]
        return list(zip(ids, found, strict=True))

    answers = ranks(2).run(on_rank)
    together = samples(SKEWED)
    for steps in zip(*answers, strict=True):
        loss, _ = alone([together[i] for ids, _ in steps for i in ids])
        assert abs(np.mean([found for _, found in steps]) - loss) <= FLOAT32
    assert abs(answers[0][0][1] - answers[1][0][1]) > 1e-2, "the ranks' own parts differ, else nothing is weighted"


def test_nothing_looks_at_another_sequence_in_keras_attention(ranks: Any) -> None:
    def on_rank() -> None:
        (batch,) = hva.bload_dataset([x.astype(np.float32) for x, _ in samples([4, 3])], [4, 3], 8)
        layer = keras.layers.MultiHeadAttention(2, 3)
        mask = hva.block_attention_mask(batch.segment_ids)
        before = layer(batch.data, batch.data, attention_mask=mask).numpy()
        first = int(np.argmax(batch.segment_ids.numpy()[0] == 2))
        changed = batch.data.numpy().copy()
        changed[0, first:] += 9
        after = layer(changed, changed, attention_mask=mask).numpy()
        assert np.abs(after - before)[0, :first].max() <= 1e-6  # of float32: not one value of theirs has changed
        assert np.abs(after - before)[0, first:].max() > 1e-2
        assert np.isfinite(after).all()

    ranks(1).run(on_rank)


def test_the_mask_by_hand() -> None:
    T, F = True, False
    mask = hva.block_attention_mask(tf.constant([[1, 1, 2, 0, 0]]))
    assert mask.numpy().tolist() == [[[T, T, F, F, F], [T, T, F, F, F], [F, F, T, F, F], [F, F, F, T, T], [F, F, F, T, T]]]
    causal = hva.block_attention_mask(np.array([[1, 1, 2, 0, 0]]), causal=True)
    assert causal.numpy().tolist() == [[[T, F, F, F, F], [T, T, F, F, F], [F, F, T, F, F], [F, F, F, T, F], [F, F, F, T, T]]]
    with pytest.raises(ConfigError, match=r"segment_ids must be \[b, T\], got \(3,\); take batch.segment_ids"):
        hva.block_attention_mask(tf.constant([1, 1, 2]))


def test_bad_input(ranks: Any) -> None:
    def on_rank() -> None:
        losses, valid = tf.zeros((2, 3)), tf.ones((2, 3), tf.bool)
        with pytest.raises(ConfigError, match=r"a bool of the losses' shape \(2, 3\), got bool of \(3, 2\); reduce the losses"):
            hva.valid_mean(losses, tf.transpose(valid))
        with pytest.raises(ConfigError, match=r"got float32 of \(2, 3\)"):
            hva.valid_mean(losses, losses)
        for total in (-1, 2.0):
            with pytest.raises(ConfigError, match=r"total must be a whole number from 0 to \d+ \(of all ranks\), got"):
                hva.valid_mean(losses, valid, total=total)
        with pytest.raises(ConfigError, match=r"total must be one whole number, such as batch.total, got int32 of \(1,\)"):
            hva.valid_mean(losses, valid, total=tf.constant([3]))

    ranks(1).run(on_rank)
