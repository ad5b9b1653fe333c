"""Methods by name, as a command line gives them: wrong names and options are told what is legal."""

import pytest

from hvd_adaptive import BFloat16, ConfigError, Half, Identity, RandomK, TopK, compressor
from hvd_adaptive.compress import NAMES
from hvd_adaptive.compress.base import kept_count


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("identity", {}, Identity()),
        ("half", {}, Half()),
        ("bfloat16", {}, BFloat16()),
        ("topk", {"factor": 100}, TopK(factor=100)),
        ("randomk", {"factor": 2.5}, RandomK(factor=2.5)),
        ("randomk", {"factor": 2.5, "unbiased": True}, RandomK(factor=2.5, unbiased=True)),
    ],
)
def test_each_name_gives_its_method(name, options, expected):
    assert compressor(name, **options) == expected


def test_names_lead_to_different_methods():
    assert len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize("name", ["", "TopK", "top-k", "none"])
def test_an_unknown_name_is_told_the_legal_ones(name):
    with pytest.raises(ConfigError) as raised:
        compressor(name)
    assert list(NAMES)[:5] == ["identity", "half", "bfloat16", "topk", "randomk"]
    assert str(raised.value) == f"unknown compressor {name!r}; legal are {', '.join(NAMES)}"


def test_an_unknown_option_is_told_the_legal_ones():
    with pytest.raises(ConfigError, match=r"^topk has no option ratio, k; legal are: factor$"):
        compressor("topk", ratio=0.1, factor=3, k=9)
    with pytest.raises(ConfigError, match=r"^half has no option factor; legal are: none$"):
        compressor("half", factor=3)


def test_a_missing_option_is_named():
    with pytest.raises(ConfigError, match=r"^randomk needs factor=$"):
        compressor("randomk")


@pytest.mark.parametrize("name", ["topk", "randomk"])
@pytest.mark.parametrize("factor", [0, "10", None, True])
def test_a_bad_factor_is_refused_as_by_the_constructor(name, factor):
    with pytest.raises(ConfigError, match="factor must be a finite number >= 1"):
        compressor(name, factor=factor)


@pytest.mark.parametrize(
    ("factor", "n", "k"),
    [
        (1, 0, 0),
        (10, 0, 0),
        (1, 1, 1),
        (1e9, 5, 1),
        (10, 14, 1),
        (10, 15, 2),
        (10, 16, 2),
        (3, 10, 3),
        (1.0001, 5, 5),
        (2, 2**31, 2**30),
    ],
)
def test_the_number_kept_is_the_nearest_to_n_over_factor(factor, n, k):
    assert kept_count(factor, n) == k


def test_the_number_kept_never_grows_with_the_factor():
    counts = [kept_count(1 + step / 7, 1000) for step in range(1000)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 1000
