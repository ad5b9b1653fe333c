"""A controller in the loop with a machine: what it decides sets what a step costs, and of that it is told, by Steering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from hvd_adaptive.control import Controller, Decision
from hvd_adaptive.measure import Measured
from hvd_adaptive.monitor import Meter
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.steering import Steering


class Alone:
    """The only rank; what it sends comes back."""

    rank, size = 0, 1

    def start(self, kind: str, x: Any, name: str, splits: tuple[int, ...] = ()) -> Any:
        return x

    def wait(self, handle: Any) -> Any:
        return handle


def steering_of(controller: Controller, collective: Any, units: int = 1, ops: Any = None) -> Steering:
    """Over ``units`` that may all be compressed."""
    plans: list[Any] = [SimpleNamespace(dense=False)] * units
    return Steering(controller, plans, ops or NumpyOps(), collective, "test", Meter())


def simulate(
    controller: Controller,
    steps: int,
    seconds: Callable[[int, float], float | None] = lambda *_: None,
    sent: Callable[[float], float] = lambda _: 0,
    gains: Callable[[int, Sequence[float]], Sequence[float]] = lambda _, factors: [1.0] * len(factors),
) -> tuple[list[Decision], list[bool]]:
    """Steps of one unit on one rank.

    Args:
        seconds: of a step at a factor; None if it is not known.
        sent: bytes of a step at a factor.
        gains: at the wanted factors in a step.

    Returns:
        decisions, and whether something was wanted of each step.
    """
    steering, decisions, wants, total = steering_of(controller, Alone()), [], [], 0
    for step in range(steps):
        steering.begin(step)
        wanted = steering.wanted(0)
        wants.append(wanted is not None)
        if wanted is not None:
            steering.note(0, Measured(tuple(gains(step, wanted.factors)), 1.0, 1.0))
        if steering.waits:
            steering.agree(step)
        decision = steering.decision(0)
        assert decision is not None
        decisions.append(decision)
        steering.report()
        total += round(sent(decision.factor))
        steering.end(step, seconds(step, decision.factor), total)
    return decisions, wants
