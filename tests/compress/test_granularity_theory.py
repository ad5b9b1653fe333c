"""What Dutta et al. 2020 prove about layer-wise and entire-model compression, and what methods promise of mean and variance.

Exact where whole numbers allow. Where draws decide, means of T draws lie within 5.5 deviations that follow from the distribution;
draws are fixed, so a test that passes once always passes. Only numpy draws here: that backends draw alike is tested elsewhere.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from vectors import draw, sent

from hvd_adaptive import (
    DGC,
    QSGD,
    AdaptiveThreshold,
    BFloat16,
    EFSign,
    Half,
    Identity,
    NaturalCompression,
    OneBit,
    PowerSGD,
    RandomK,
    RedSync,
    SignSGD,
    TernGrad,
    Threshold,
    TopK,
)
from hvd_adaptive.ops.numpy_ops import NumpyOps

NUMPY = NumpyOps()
DEVIATIONS = 5.5
layers = st.lists(hnp.arrays("float64", st.integers(1, 12), elements=st.integers(-50, 50)), min_size=1, max_size=5)
layers_without_zeros = st.lists(
    hnp.arrays("float64", st.integers(1, 6), elements=st.integers(1, 50).map(lambda i: i * (-1) ** i)), min_size=1, max_size=4
)


def decoded(method, x, step=0):
    return NUMPY.to_numpy(method.decode(NUMPY, method.encode(NUMPY, x.copy(), draw(step)), draw(step)))


def squared(x):
    return float(np.sum(np.square(x.astype(np.float64))))


# ---- granularity -----------------------------------------------------------------------------------------------------------


@given(layers=layers, factor=st.floats(1, 12))
def test_topk_of_the_entire_model_loses_no_more_than_of_layers(ops, layers, factor):
    """With as many elements kept; squares of whole numbers are exact."""
    by_layer = [sent(ops, TopK(factor), layer) for layer in layers]
    kept = sum(result.payload.kept for result in by_layer)
    model = np.concatenate(layers)
    whole = sent(ops, TopK(model.size / kept), model)
    assert whole.payload.kept == kept
    assert squared(model - whole.y) <= sum(squared(x - result.y) for x, result in zip(layers, by_layer, strict=True))


def test_topk_of_layers_may_lose_more(ops):
    x, y = np.array([9.0, 8]), np.array([1.0, 2])
    assert squared(np.concatenate([x, y]) - sent(ops, TopK(2), np.concatenate([x, y])).y) == 5
    assert sum(squared(z - sent(ops, TopK(2), z).y) for z in (x, y)) == 65


@given(layers=layers, value=st.integers(0, 55))
def test_a_threshold_keeps_the_same_elements_whatever_the_granularity(ops, layers, value):
    by_layer = [sent(ops, Threshold(value), layer) for layer in layers]
    starts = np.cumsum([0, *(layer.size for layer in layers)])
    positions = [p + start for result, start in zip(by_layer, starts, strict=False) for p in result.fields[1].tolist()]
    whole = sent(ops, Threshold(value), np.concatenate(layers))
    assert sorted(whole.fields[1].tolist()) == sorted(positions)
    np.testing.assert_array_equal(whole.y, np.concatenate([result.y for result in by_layer]))


def two_points(x, norm, levels):
    """Of random rounding: distance of each element from the level below, the step between levels, and the chance to go up."""
    step = norm / levels
    height = np.abs(x) / step
    below = np.floor(height)
    return (height - below) * step, step, height - below


def variance(x, norm, levels=1):
    """Of all elements together: each is step^2 f (1 - f)."""
    below, step, _ = two_points(x, norm, levels)
    return float(np.sum(below * (step - below)))


def deviation_of_error(x, norm, levels=1):
    """Of the sum of squared errors, elements being independent: (step - b)^2 with chance f, b^2 otherwise."""
    below, step, up = two_points(x, norm, levels)
    return math.sqrt(float(np.sum(up * (1 - up) * ((step - below) ** 2 - below**2) ** 2)))


NORMS = {"terngrad": lambda x: float(np.abs(x).max()), "qsgd": lambda x: float(np.linalg.norm(x))}


def repeated(kind, x, times):
    """``times`` independent draws of ``x`` in one call: each bucket has the norm of ``x``, and the largest stays the largest."""
    method = TernGrad() if kind == "terngrad" else QSGD(1, bucket=x.size)
    return decoded(method, np.tile(x, times)).reshape(times, x.size)


@pytest.mark.parametrize("kind", NORMS)
@given(layers=layers_without_zeros)
def test_layer_wise_quantisation_loses_no_more_than_entire_model(kind, layers):
    """With one level the variance is norm ||x||_1 - ||x||_2^2, and no layer has a larger norm than the model; and draws agree."""
    norm, times = NORMS[kind], 400
    model = np.concatenate(layers)
    apart, whole = sum(variance(x, norm(x)) for x in layers), variance(model, norm(model))
    rounding = 8 * model.size * 2.0**-52 * norm(model) * np.abs(model).sum()  # sums of so many terms, and their difference
    assert apart <= whole + rounding
    closed = sum(norm(x) * np.abs(x).sum() - squared(x) for x in layers)
    assert abs(apart - closed) <= rounding
    for x in (*layers, model):
        errors = np.sum((repeated(kind, x, times) - x) ** 2, axis=1)
        expected, deviation = variance(x, norm(x)), deviation_of_error(x, norm(x))
        assert abs(errors.mean() - expected) <= DEVIATIONS * deviation / math.sqrt(times) + 1e-9 * (expected + 1)


@pytest.mark.parametrize("kind", NORMS)
def test_by_draws_alone_layer_wise_loses_less(kind):
    """Two layers of sizes 1 and 10: the means are many deviations apart."""
    rng = np.random.default_rng(0)
    small, large, times = rng.standard_normal(20), 10 * rng.standard_normal(20), 2000
    model = np.concatenate([small, large])
    errors = [np.sum((repeated(kind, x, times) - x) ** 2, axis=1) for x in (small, large, model)]
    apart, whole = errors[0] + errors[1], errors[2]
    gap = math.sqrt((apart.var() + whole.var()) / times)
    assert whole.mean() - apart.mean() > 10 * gap


def test_with_several_levels_the_entire_model_may_lose_less():
    """Four equal elements lie on a level of 2 under their norm, two of them do not: the theorem is of one level, or of bounds."""
    x = np.ones(4)
    assert variance(x, NORMS["qsgd"](x), 2) == 0 < 2 * variance(x[:2], NORMS["qsgd"](x[:2]), 2)
    np.testing.assert_array_equal(decoded(QSGD(2), x), x)
    assert np.any(decoded(QSGD(2), x[:2]) != 1)


# ---- lemma 1: E||Q(x)||^2 <= sum over layers of (1 + omega_j) ||x_j||^2 <= max (1 + omega_j) ||x||^2 ---------------------------

DRAWN = [
    RandomK(3),
    RandomK(3, unbiased=True),
    TernGrad(),
    TernGrad(clip=1.5),
    QSGD(1),
    QSGD(7),
    QSGD(1, "max"),
    QSGD(4, "max", bucket=7),
    QSGD(2, bucket=7),
    NaturalCompression(),
]
FIXED = [
    Identity(),
    Half(),
    BFloat16(),
    TopK(3),
    Threshold(1.0),
    AdaptiveThreshold(),
    DGC(3),
    RedSync(3),
    SignSGD(scaled=True),
    OneBit(),
    EFSign(),
    EFSign(4),
    PowerSGD(1),
]
LAYERS = {
    "normal": (5, 1, 40),
    "one large": (30, 2),
    "equal": (16, 9),
}


def made(kind):
    rng = np.random.default_rng(1)
    for n in LAYERS[kind]:
        yield {
            "normal": rng.standard_normal(n),
            "one large": np.where(np.arange(n) == 1, -5.0, 1.0),
            "equal": np.full(n, 4 / 3),
        }[kind]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("method", [*FIXED, *DRAWN], ids=repr)
def test_lemma_1(method, kind):
    """The mean of the squares of ``times`` steps lies above its expectation by 5.5 of its deviations at most."""
    times = 60 if method in DRAWN else 1
    parts = list(made(kind))
    squares = np.array([sum(squared(decoded(method, x, step * 8 + j)) for j, x in enumerate(parts)) for step in range(times)])
    by_layer = sum((1 + method.omega(x.size)) * squared(x) for x in parts)
    by_model = max(1 + method.omega(x.size) for x in parts) * sum(squared(x) for x in parts)
    slack = DEVIATIONS * squares.std() / math.sqrt(times) + 1e-12 * by_layer
    assert squares.mean() <= by_layer + slack
    assert by_layer <= by_model * (1 + 1e-12)


@pytest.mark.parametrize("n", [1, 2, 9, 100, 5000])
@pytest.mark.parametrize(
    ("method", "worst"),
    [
        (TernGrad(), lambda n: np.append(np.full(n - 1, 1 / (1 + n**0.5)), 1)),
        (RandomK(4, unbiased=True), np.ones),
        (RandomK(4), np.ones),
        (NaturalCompression(), lambda n: np.full(n, 4 / 3)),
        (TopK(1), np.ones),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_the_bound_is_attained(method, worst, n):
    """So it is not just any large number: the worst vector there is comes within 5.5 deviations and a rounding."""
    times, x = 100, worst(n).astype(np.float64)
    squares = np.array([squared(decoded(method, x, step)) for step in range(times)])
    bound = (1 + method.omega(n)) * squared(x)
    assert abs(squares.mean() - bound) <= DEVIATIONS * squares.std() / math.sqrt(times) + 1e-12 * bound


def test_bounds_of_qsgd_by_hand():
    """b / 4 s^2 where levels are close, sqrt(b) / s where they are not."""
    assert QSGD(8).omega(64) == 64 / 256
    assert QSGD(1).omega(64) == 8
    assert QSGD(1, bucket=4).omega(64) == 1
    assert QSGD(1, bucket=400).omega(64) == 8
    assert QSGD(1, "max").omega(64) == 4.5
    assert QSGD(8, "max").omega(64) == 64 / 256


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_close_levels_attain_a_quarter_of_a_step_squared(levels):
    """(4 levels^2) elements on half a step each: b / 4 s^2 is what they add."""
    n = 4 * levels**2
    x = np.ones(n)
    assert QSGD(levels).omega(n) == 1
    np.testing.assert_allclose(variance(x, n**0.5, levels), n, rtol=1e-12)  # a root and a sum of n equal terms, 1e-16 each
    assert set(np.unique(decoded(QSGD(levels), x)).tolist()) == {0.0, 2.0}


@given(layers=layers, factor=st.floats(1, 12))
def test_topk_contracts(ops, layers, factor):
    x = np.concatenate(layers)
    result = sent(ops, TopK(factor), x)
    assert x.size * squared(x - result.y) <= (x.size - result.payload.kept) * squared(x)


# ---- means -----------------------------------------------------------------------------------------------------------------

SOME = np.array([0.9, -0.31, 0.05, 1e-3, -1.7, 0.0, 0.6, 1.3, -0.8, 0.011], np.float32)


def norms_of(method, x):
    """One for each element."""
    if isinstance(method, TernGrad):
        return np.full(x.size, np.abs(x).max())
    width = method.bucket or x.size
    measure = np.linalg.norm if method.norm == "l2" else lambda row: np.abs(row).max()
    return np.array([measure(x[i // width * width :][:width].astype(float)) for i in range(x.size)])


def assert_mean(means, expected, variances, times, scale):
    """Means of ``times`` draws, element by element; uniform numbers are multiples of 2^-24 and values rounded by as much."""
    allowed = DEVIATIONS * np.sqrt(variances / times) + 2.0**-22 * scale
    assert np.all(np.abs(means - expected) <= allowed), np.abs(means - expected) / allowed


@pytest.mark.parametrize(
    "method", [TernGrad(), QSGD(1, bucket=10), QSGD(7, bucket=10), QSGD(3, "max"), QSGD(2, bucket=5)], ids=repr
)
def test_random_rounding_is_unbiased(method):
    """Twenty thousand copies of ten elements, of which each bucket, or the largest of all, is as if there were one."""
    times, norms = 20000, norms_of(method, SOME)
    levels = 1 if isinstance(method, TernGrad) else method.levels
    below, step, up = two_points(SOME.astype(np.float64), norms, levels)
    draws = decoded(method, np.tile(SOME, times)).reshape(times, SOME.size).astype(np.float64)
    assert_mean(draws.mean(0), SOME, below * (step - below), times, norms)
    chance = np.sqrt(up * (1 - up) / times)  # what the frequency of going up deviates by; the variance follows to second order
    allowed = step**2 * (DEVIATIONS * np.abs(1 - 2 * up) * chance + DEVIATIONS**2 * chance**2 + 2.0**-22)
    assert np.all(np.abs(draws.var(0) - below * (step - below)) <= allowed)


@pytest.mark.parametrize("method", [QSGD(1), QSGD(7), QSGD(4, "max"), TernGrad()], ids=repr)
def test_over_steps_too_it_is_unbiased(method):
    times, norms = 2000, norms_of(method, SOME)
    levels = 1 if isinstance(method, TernGrad) else method.levels
    below, step, _ = two_points(SOME.astype(np.float64), norms, levels)
    means = np.mean([decoded(method, SOME, step) for step in range(times)], axis=0, dtype=np.float64)
    assert_mean(means, SOME, below * (step - below), times, norms)


def test_natural_compression_is_unbiased_subnormals_too():
    x = np.append(SOME, np.array([3e-39, -1e-40, 2.0**-126 * 1.5], np.float32))
    times, wide = 20000, np.abs(x.astype(np.float64))
    below = np.where(wide >= 2.0**-126, 2.0 ** np.floor(np.log2(np.maximum(wide, 2.0**-126))), 0)
    above = np.where(below > 0, 2 * below, 2.0**-126)
    draws = decoded(NaturalCompression(), np.tile(x, times)).reshape(times, x.size).astype(np.float64)
    assert_mean(draws.mean(0), x.astype(np.float64), (wide - below) * (above - wide), times, 0.0)


@pytest.mark.parametrize("factor", [1, 2, 3, 10])
@pytest.mark.parametrize("unbiased", [False, True])
def test_the_mean_of_random_k(factor, unbiased):
    """Each element is kept with chance k/n: its mean is k/n of it, or it itself where it is multiplied by n/k."""
    times, n = 400, SOME.size
    k = min(n, max(1, round(n / factor)))
    chance, multiplier = k / n, n / k if unbiased else 1.0
    x = SOME.astype(np.float64)
    means = np.mean([decoded(RandomK(factor, unbiased), x, step) for step in range(times)], axis=0)
    assert_mean(means, chance * multiplier * x, (multiplier * x) ** 2 * chance * (1 - chance), times, 0.0)


@pytest.mark.parametrize("method", [RandomK(2), TernGrad(), QSGD(3), NaturalCompression()], ids=repr)
def test_steps_draw_independently(method):
    """What consecutive steps add to the mean does not correlate."""
    times = 300
    errors = np.array([decoded(method, SOME, step) for step in range(times + 1)], np.float64)
    errors -= errors.mean(0)
    products = (errors[1:] * errors[:-1]).sum(1)
    assert abs(products.mean()) <= DEVIATIONS * products.std() / math.sqrt(times)
