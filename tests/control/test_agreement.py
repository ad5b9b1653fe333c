"""Ranks over Loopback with descriptions that differ: all raise, all say the same, and it names what differs."""

import re

import pytest

from hvd_adaptive import AgreementError
from hvd_adaptive.collective import Loopback
from hvd_adaptive.control import agree, largest
from hvd_adaptive.control.agreement import differences

BASE = {"compressor": "TopK(factor=100.0)", "seed": "0", "scope": "layer-wise", "ranks": [0, 1, 2, 3]}


def outcomes(ops, descriptions):
    """What each rank raised, or None."""

    def step(collective):
        try:
            agree(ops, collective, descriptions[collective.rank], "handshake")
        except AgreementError as error:
            return str(error)

    return Loopback(len(descriptions), ops, timeout=10).run(step)


def told(ops, descriptions):
    """The one message that all ranks raised."""
    messages = set(outcomes(ops, descriptions))
    assert len(messages) == 1
    (message,) = messages
    assert message is not None
    return message


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_equal_descriptions_pass(ops, ranks):
    shuffled = dict(reversed(BASE.items()))
    assert outcomes(ops, [BASE if rank % 2 else shuffled for rank in range(ranks)]) == [None] * ranks


def test_equal_descriptions_cost_32_bytes(ops):
    handed = []

    class Counting:
        def __init__(self, collective):
            self.rank, self.size, self.wait = collective.rank, collective.size, collective.wait
            self._collective = collective

        def start(self, kind, x, name, splits=()):
            handed.append((kind, ops.dtype(x), ops.size(x)))
            return self._collective.start(kind, x, name, splits)

    Loopback(3, ops).run(lambda collective: agree(ops, Counting(collective), BASE, "handshake"))
    assert handed == [("gather", "uint8", 32)] * 3


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("odd", ["first", "last"])
@pytest.mark.parametrize("entry", list(BASE))
def test_one_entry_differs_on_one_rank(ops, ranks, odd, entry):
    """It is named with its two values, whichever rank is the odd one."""
    rank = 0 if odd == "first" else ranks - 1
    descriptions = [dict(BASE) for _ in range(ranks)]
    descriptions[rank][entry] = "something else"
    message = told(ops, descriptions)
    assert "configured differently" in message
    holders = ("something else", BASE[entry]) if rank == 0 else (BASE[entry], "something else")
    other = 1 if rank == 0 else rank
    assert message.endswith(f"\n  {entry}: rank 0 has {holders[0]}, rank {other} has {holders[1]}")
    assert len(re.findall(r"rank 0 has", message)) == 1


@pytest.mark.parametrize("value", ["0", 7, [1, 2], None, False])
def test_an_entry_is_missing_on_one_rank(ops, value):
    lacking, having = dict(BASE), BASE | {"extra": value}
    assert f"extra: rank 0 has nothing, rank 1 has {value}" in told(ops, [lacking, having, lacking])
    assert f"extra: rank 0 has {value}, rank 1 has nothing" in told(ops, [having, lacking, having])
    assert f"extra: rank 0 has nothing, rank 2 has {value}" in told(ops, [lacking, lacking, having])


def test_order_of_a_list_counts(ops):
    assert "ranks: rank 0 has [0, 1], rank 1 has [1, 0]" in told(ops, [{"ranks": [0, 1]}, {"ranks": [1, 0]}])


@pytest.mark.parametrize(("count", "more"), [(5, None), (6, "... and 1 more"), (40, "... and 35 more")])
def test_at_most_five_differences_are_listed(ops, count, more):
    message = told(ops, [{f"parameter {i:02}": str(i) for i in range(count)}, {f"parameter {i:02}": "x" for i in range(count)}])
    lines = message.splitlines()[1:]
    assert [line.strip().split(":")[0] for line in lines[:5]] == [f"parameter {i:02}" for i in range(5)]
    assert [line.strip() for line in lines[5:]] == ([more] if more else [])


def test_texts_of_different_length_and_script(ops):
    message = told(ops, [{"name": "x"}, {"name": "größer" * 50}, {"name": ""}])
    assert "rank 0 has x, rank 1 has größergrößer" in message


def test_an_empty_description_differs_from_any_other(ops):
    assert outcomes(ops, [{}, {}]) == [None, None]
    assert "seed: rank 0 has nothing, rank 1 has 1" in told(ops, [{}, {"seed": "1"}])


def test_differences_by_hand():
    """The first that differs from the first stands for all; entries that agree are not listed."""
    found = differences({"saved": {"a": 1, "b": 2}, "here": {"a": 1, "b": 3}, "there": {"a": 5, "b": 4, "c": 6}})
    assert found == ["a: saved has 1, there has 5", "b: saved has 2, here has 3", "c: saved has nothing, there has 6"]
    assert differences({"one": {"a": 1}, "two": {"a": 1}}) == []


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), (None, "nothing"), ("1", 1)])
def test_values_that_python_or_a_reader_may_take_for_equal_are_still_named(ops, one, other):
    """Their JSON texts differ, so the ranks refuse; then the reason must be given."""
    assert "entry: rank 0 has" in told(ops, [{"entry": one}, {"entry": other}])


@pytest.mark.parametrize("numbers", [[0], [3, 5, 4], [7, 7]])
def test_the_largest_number_is_known_to_all(ops, numbers):
    found = Loopback(len(numbers), ops).run(lambda c: largest(ops, c, numbers[c.rank], "number"))
    assert found == [max(numbers)] * len(numbers)
