"""A controller that follows a function."""

import re

import numpy as np
import pytest

from hvd_adaptive import ConfigError, Schedule


def test_the_factor_is_the_functions():
    controller = Schedule(lambda step: 4 if step < 3 else np.float32(2.5))
    state = controller.start()
    decided = [controller.decide(state, step) for step in range(5)]
    assert [decision.factor for decision in decided] == [4, 4, 4, 2.5, 2.5]
    assert {type(decision.factor) for decision in decided} == {float}
    assert {decision.branch for decision in decided} == {"scheduled"}
    assert all(controller.wants(state, step) is None for step in range(5))


@pytest.mark.parametrize("factor", [0, 0.5, -1, float("nan"), float("inf"), "10", None, True])
def test_refuses_what_is_no_factor_and_names_the_step(factor):
    controller = Schedule(lambda step: factor if step == 7 else 10)
    assert controller.decide(None, 6).factor == 10
    with pytest.raises(ConfigError, match=r"^Schedule: step 7: factor must be a finite number >= 1") as raised:
        controller.decide(None, 7)
    assert str(raised.value).endswith(f"got {factor!r}")


@pytest.mark.parametrize("function", [10, None, "x", [10, 20]])
def test_refuses_what_cannot_be_called(function):
    with pytest.raises(ConfigError, match=f"^Schedule: function must .* got {re.escape(repr(function))}$"):
        Schedule(function)
