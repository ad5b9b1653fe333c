"""The benchmark of packing prints what it should, and its slow references agree with the tests' own."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import packers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packers import LENGTHS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SIZE = 3000


@pytest.fixture(scope="module")
def found():
    command = [sys.executable, str(BENCHMARKS / "packing.py"), "--json", "--sequences", str(SIZE), "--repeats", "1"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def module(name):
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_every_set_and_policy_has_its_figures(found):
    assert list(found) == ["action_genome", "lognormal", "uniform", "wikipedia", "kjv"]
    for figures in found.values():
        assert figures["lower_bound_ceil"] <= figures["lower_bound_l2"] <= figures["best_fit"]["blocks"]
        assert figures["best_fit"]["blocks"] == figures["global_best_fit_decreasing"]["blocks"]
        for policy in ("best_fit", "random", "next_fit"):
            assert figures[policy]["padding"] == figures[policy]["blocks"] * figures["block_length"] - figures["elements"]
            assert figures[policy]["deleted"] == 0
            assert figures[policy]["sequences_per_second"] > 0
            assert figures[policy]["bytes_per_sequence"] > 12
        assert figures["best_fit"]["padding"] <= figures["random"]["padding"] < figures["zero_pad"]
    assert [found[name]["sequences"] for name in ("lognormal", "uniform", "wikipedia")] == [SIZE] * 3
    assert found["kjv"]["sequences"] == 31_102


def test_action_genome_like_the_paper(found):
    figures = found["action_genome"]
    assert (figures["sequences"], figures["elements"], figures["block_length"]) == (7464, 166_785, 94)
    assert figures["zero_pad"] == 534_831
    assert figures["random"]["padding"] * 100 <= 534_831
    assert figures["best_fit"]["padding"] * 1000 <= 534_831


def test_the_sets_are_what_they_say():
    sets = module("packing_sets")
    videos = sets.action_genome(0)
    assert (videos.min(), videos.max(), (videos < 22).sum(), videos[videos < 22].sum()) == (3, 94, 4077, 51_982)
    assert 570 < sets.lognormal(50_000).mean() < 600
    wikipedia = sets.wikipedia(50_000)
    assert (wikipedia.min(), wikipedia.max()) == (5, 512)
    assert abs(wikipedia.mean() - 256) < 3
    uniform = sets.uniform(50_000)
    assert (uniform.min(), uniform.max()) == (1, 2048)
    assert abs(uniform.mean() - 1024.5) < 15


@given(lengths=LENGTHS, block_length=st.integers(40, 90))
def test_the_reference_is_best_fit_decreasing(lengths, block_length):
    assert module("packing").best_fit_decreasing(lengths, block_length) == packers.best_fit_decreasing(lengths, block_length)


def test_the_published_random_fill_pads_about_as_much_as_ours():
    """Its bias moves ids, not lengths."""
    packing = module("packing")
    lengths = packing.SETS["uniform"][0](SIZE)
    ours = [len(packing.pack(lengths, 2048, "random", seed)) for seed in range(5)]
    published = packing.published_random_fill(lengths.tolist(), 2048)
    assert abs(published - np.mean(ours)) < 0.01 * published
