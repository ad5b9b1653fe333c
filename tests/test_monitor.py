"""Totals against sums by hand; records against what a JSON reader gets back."""

import gc
import json
import time
from dataclasses import replace

import pytest

from hvd_adaptive import JsonLines, Memory, StepRecord
from hvd_adaptive.monitor import Meter


def record(step=0, unit="a", elements=100, kept=10, sent=80, dense=400, finite=True):
    return StepRecord(step, unit, elements, kept, elements / kept, sent, dense, finite)


def test_totals_are_sums_and_factors_the_latest():
    meter = Meter()
    meter.add(record(0, "a"))
    meter.add(record(0, "b", 20, 20, 40, 80))
    meter.add(record(1, "a", 100, 50, 400, 400))
    meter.add_bytes(4)
    meter.add_bytes(2)
    stats = meter.stats(ranks=2, steps=2)
    assert (stats.ranks, stats.steps) == (2, 2)
    assert (stats.elements_sent, stats.elements_dense) == (80, 220)
    assert (stats.bytes_sent, stats.bytes_dense) == (526, 880)
    assert stats.factors == {"a": 2.0, "b": 1.0}
    assert stats.nonfinite_steps == 0


def test_a_step_counts_once_however_many_units_were_not_finite():
    meter = Meter()
    for step, unit, finite in ((0, "a", False), (0, "b", False), (1, "a", True), (2, "a", True), (2, "b", False)):
        meter.add(record(step, unit, finite=finite))
    assert meter.stats(2, 3).nonfinite_steps == 2


def test_one_rank_is_told_why_nothing_was_compressed():
    assert Meter().stats(ranks=2, steps=0).note == ""
    assert Meter().stats(ranks=2, steps=0, note="quiet").note == "quiet"


def test_stats_are_a_snapshot():
    meter = Meter()
    meter.add(record())
    before = meter.stats(2, 1)
    meter.add(record(1, "b"))
    with meter.time("decode"):
        pass
    assert before.factors == {"a": 10.0}
    assert before.elements_sent == 10
    assert before.seconds == {"compress": 0.0, "exchange": 0.0, "decode": 0.0}


def test_time_is_added_to_its_phase_even_if_the_block_fails():
    meter = Meter()
    for _ in range(2):
        with meter.time("exchange"):
            time.sleep(0.02)
    with pytest.raises(KeyError), meter.time("compress"):
        time.sleep(0.01)
        raise KeyError
    seconds = meter.stats(2, 0).seconds
    assert seconds["exchange"] >= 0.04
    assert seconds["compress"] >= 0.01
    assert seconds["decode"] == 0


def test_reset_forgets_everything():
    meter = Meter()
    fresh = meter.stats(2, 0)
    meter.add(record(finite=False))
    meter.add_bytes(9)
    with meter.time("decode"):
        time.sleep(0.001)
    assert meter.stats(2, 0) != fresh
    meter.reset()
    assert meter.stats(2, 0) == fresh


def test_records_are_passed_on_in_order():
    memory = Memory()
    meter = Meter(memory)
    records = [record(0, "a"), record(0, "b"), record(1, "a", finite=False)]
    for each in records[:2]:
        meter.add(each)
    assert memory.records == []
    assert meter.end_step() is None
    assert memory.records == records[:2]
    meter.add(records[2])
    assert meter.end_step() > 0
    assert [replace(each, compute_seconds=None, steps_per_second=None) for each in memory.records] == records
    assert Memory().records == []


def test_json_lines_hold_every_field_and_are_there_at_once(tmp_path):
    path = tmp_path / "deep" / "er" / "rank0.jsonl"
    sink = JsonLines(path)
    sink.record(record(0, "größer"))
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {
            "step": 0,
            "unit": "größer",
            "elements": 100,
            "kept": 10,
            "factor": 10.0,
            "bytes_sent": 80,
            "bytes_dense": 400,
            "finite": True,
            "branch": "",
            "candidate": None,
            "gains": {},
            "compute_seconds": None,
            "compress_seconds": 0.0,
            "exchange_seconds": 0.0,
            "decode_seconds": 0.0,
            "steps_per_second": None,
        }
    ]
    sink.record(record(1, finite=False))
    assert [json.loads(line)["finite"] for line in path.read_text("utf-8").splitlines()] == [True, False]


def test_json_lines_append_to_what_an_earlier_run_wrote(tmp_path):
    for step in range(2):
        JsonLines(str(tmp_path / "log.jsonl")).record(record(step))
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [0, 1]


def test_json_lines_leave_no_open_file_behind(tmp_path):
    """Python warns of one, and in this suite warnings are errors."""
    JsonLines(tmp_path / "log.jsonl").record(record())
    gc.collect()
