"""A controller that answers the same whatever it observes."""

import pytest

from hvd_adaptive import ConfigError, Fixed
from hvd_adaptive.control import Decision, Observation


@pytest.mark.parametrize("factor", [1, 10, 2.5])
def test_the_factor_never_changes(factor):
    controller = Fixed(factor)
    state = controller.start()
    for step in range(5):
        assert controller.decide(state, step) == Decision(factor)
        assert controller.wants(state, step) is None
        state = controller.observe(state, Observation(step + 1))
    assert state == controller.start()


def test_is_a_frozen_value_that_prints_what_it_is():
    assert Fixed(10) == Fixed(factor=10.0)
    assert repr(Fixed(10)) == "Fixed(factor=10.0)"
    with pytest.raises(AttributeError):
        Fixed(10).factor = 20


@pytest.mark.parametrize("factor", [0, 0.5, -1, float("nan"), float("inf"), "10", None, True])
def test_refuses_a_bad_factor(factor):
    with pytest.raises(ConfigError) as raised:
        Fixed(factor)
    assert str(raised.value).startswith("Fixed: factor must be a finite number >= 1")
    assert str(raised.value).endswith(f"got {factor!r}")
