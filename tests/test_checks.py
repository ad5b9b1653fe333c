"""What is refused, how it is said, and the type that comes back."""

from fractions import Fraction

import numpy as np
import pytest

from hvd_adaptive import ConfigError, checks

NO_NUMBERS = [None, "3", b"3", True, False, 1j, [3], object, float("nan"), float("inf"), -float("inf"), np.nan, 10**400]


@pytest.mark.parametrize("value", [0, 1, 0.25, 1.0, np.float32(0.5), np.float64(1), np.int64(1), Fraction(1, 4)])
def test_a_number_comes_back_as_a_float(value):
    found = checks.number("Residual", "decay", value, 0, 1)
    assert type(found) is float
    assert found == value


@pytest.mark.parametrize("value", [*NO_NUMBERS, -0.001, 1.001, 2, -(10**400)])
def test_what_is_no_number_of_the_range_is_refused(value):
    with pytest.raises(ConfigError) as raised:
        checks.number("Residual", "decay", value, 0, 1)
    assert str(raised.value) == f"Residual: decay must be a number from 0 to 1, got {value!r}"


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, 0.999, -5])
def test_without_an_upper_end_it_must_still_be_finite(value):
    with pytest.raises(ConfigError) as raised:
        checks.number("TopK", "factor", value, 1, hint="10 keeps a tenth")
    assert str(raised.value) == f"TopK: factor must be a finite number >= 1 (10 keeps a tenth), got {value!r}"
    with pytest.raises(ConfigError) as raised:
        checks.number("TopK", "x", value, 1)
    assert str(raised.value) == f"TopK: x must be a finite number >= 1, got {value!r}"


@pytest.mark.parametrize("value", [1, 1.0, 1e308, 2**1000])
def test_any_finite_number_will_do_without_an_upper_end(value):
    assert checks.number("TopK", "factor", value, 1) == value


@pytest.mark.parametrize("value", [1, 7, 8, np.int32(3), np.uint8(8)])
def test_a_count_comes_back_as_an_int(value):
    found = checks.count("QSGD", "levels", value, most=8)
    assert type(found) is int
    assert found == value


@pytest.mark.parametrize("value", [0, -1, 9, 1.0, 2.5, "3", None, True, np.float32(2), np.True_, 10**400])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(ConfigError) as raised:
        checks.count("QSGD", "levels", value, most=8)
    assert str(raised.value) == f"QSGD: levels must be a whole number from 1 to 8, got {value!r}"
    with pytest.raises(ConfigError, match=r"levels must be a whole number from 1 to 8 \(more is finer\), got "):
        checks.count("QSGD", "levels", value, most=8, hint="more is finer")


def test_a_count_has_an_upper_end_by_default():
    assert checks.count("PowerSGD", "rank", 2**30) == 2**30
    with pytest.raises(ConfigError, match=f"from 1 to {2**30}, got {2**30 + 1}$"):
        checks.count("PowerSGD", "rank", 2**30 + 1)


def test_a_count_may_start_elsewhere():
    assert [checks.count("pack", "seed", value, 5, least=-3) for value in (-3, 0, 5)] == [-3, 0, 5]
    for value in (-4, 6):
        with pytest.raises(ConfigError, match=f"seed must be a whole number from -3 to 5, got {value}"):
            checks.count("pack", "seed", value, 5, least=-3)


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_comes_back(value):
    assert checks.flag("RandomK", "unbiased", value) is value


@pytest.mark.parametrize("value", [0, 1, None, "True", [], np.True_])
def test_what_is_no_flag_is_refused(value):
    with pytest.raises(ConfigError) as raised:
        checks.flag("RandomK", "unbiased", value)
    assert str(raised.value) == f"RandomK: unbiased must be True or False, got {value!r}"


def test_a_factor():
    assert checks.factor("TopK", 3) == 3.0
    assert type(checks.factor("TopK", 3)) is float
    with pytest.raises(ConfigError) as raised:
        checks.factor("TopK", 0.5)
    assert str(raised.value) == "TopK: factor must be a finite number >= 1 (10 keeps a tenth of the elements), got 0.5"
