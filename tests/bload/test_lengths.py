"""What users may hold lengths in, and that the first bad one is named."""

import fractions

import numpy as np
import pytest
import torch

from hvd_adaptive import ConfigError
from hvd_adaptive.bload.lengths import read, read_one

GOOD = [3, 1, 2**31 - 1, 4]


@pytest.mark.parametrize(
    "lengths",
    [
        GOOD,
        tuple(GOOD),
        np.array(GOOD),
        np.array(GOOD, np.uint64),
        np.array(GOOD, np.float64),
        np.array(GOOD, object),
        [np.int64(3), 1, 2**31 - 1, 4.0],
        torch.tensor(GOOD),
        torch.tensor(GOOD, dtype=torch.float64),
        np.array([0, *GOOD, 0])[1:-1],
        memoryview(np.array(GOOD)),
    ],
    ids=lambda lengths: f"{type(lengths).__name__}-{getattr(lengths, 'dtype', '')}",
)
def test_lists_arrays_and_tensors_are_read(lengths):
    found = read(lengths)
    assert found.dtype == np.int32
    assert found.tolist() == GOOD


@pytest.mark.parametrize("none", [[], (), np.zeros(0, np.int64), torch.zeros(0)])
def test_no_sequences_are_legal(none):
    assert read(none).tolist() == []


def test_what_is_read_is_a_copy():
    lengths = np.array([1, 2], np.int32)
    read(lengths)[0] = 9
    assert lengths.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("lengths", "index", "shown"),
    [
        ([5, 0, 0], 1, "0"),
        ([5, 4, -3], 2, "-3"),
        ([float("nan"), 1], 0, "nan"),
        ([1, float("inf")], 1, "inf"),
        ([1, 2, 2.5], 2, "2.5"),
        (np.array([1, 2.5], np.float16), 1, "2.5"),
        (np.array([1, -1], np.int8), 1, "-1"),
        (np.array([1, 2**63], np.uint64), 1, str(2**63)),
        ([1, 2**31], 1, str(2**31)),
        ([1, 10**30], 1, str(10**30)),
        ([1, None], 1, "None"),
        ([3, fractions.Fraction(7, 2)], 1, r"Fraction\(7, 2\)"),
        (np.array([3, True], object), 1, "True"),
        (torch.tensor([4, 0]), 1, "0"),
    ],
)
def test_the_first_bad_length_is_named(lengths, index, shown):
    with pytest.raises(ConfigError, match=rf"lengths\[{index}\] is {shown}; .* whole number from 1 to 2147483647"):
        read(lengths)


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        (5, r"got int of shape \(\)"),
        (None, "got NoneType"),
        ({3, 4}, "got set"),
        (iter([3, 4]), "got list_iterator"),
        ([[1, 2], [3, 4]], r"shape \(2, 2\)"),
        ([[1, 2], [3]], "one row"),
        (["3", "4"], r"lengths\[0\] being '3'"),
        (np.array([True, False]), "got bool"),
        (np.array([1j]), "got complex128"),
        (torch.ones(2, requires_grad=True), "grad"),
    ],
)
def test_what_is_no_row_of_numbers_is_refused(lengths, said):
    with pytest.raises(ConfigError, match=said):
        read(lengths)


@pytest.mark.parametrize("value", [5, np.int16(5), np.array(5), torch.tensor(5), torch.tensor([5])])
def test_one_length_is_read(value):
    found = read_one(value, "dataset[3]")
    assert type(found) is int
    assert found == 5


@pytest.mark.parametrize("value", [0, -1, 2**31, 2.0, 2.5, float("nan"), True, None, "5", np.float32(3), torch.tensor(5.0), [5]])
def test_what_is_no_length_is_refused_with_its_holder(value):
    with pytest.raises(
        ConfigError, match=r"^dataset\[3\] has length .*; every length must be a whole number from 1 to 2147483647"
    ):
        read_one(value, "dataset[3]")
