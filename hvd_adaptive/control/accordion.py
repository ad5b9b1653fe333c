"""Accordion: compress little while the gradient's norm changes quickly, much while it does not.

Contract  the factor is ``low`` until two windows can be compared, and after one whose mean gradient norm differs from that of the
          one before by the threshold or more, relative; else ``high``.
Source    Agarwal et al. 2021, "Accordion: Adaptive Gradient Communication via Critical Learning Regime Identification",
          arXiv:2010.16248.
Differs   the norm is the mean over ranks of each step's, averaged over a window, not that of gradients added up over an epoch,
          which would take another vector. A change of the learning rate is not seen.
"""

import math
from dataclasses import dataclass
from typing import TypedDict

from hvd_adaptive import checks
from hvd_adaptive.control.base import Controller, Decision, Observation, Wanted


class _State(TypedDict):
    """``norms`` of the window so far; the mean of the one ``before``; the ``window``'s number; the ``regime`` it found."""

    norms: list[float]
    before: float | None
    window: int
    critical: bool


@dataclass(frozen=True)
class Accordion(Controller):
    """Two factors: ``low`` in critical regimes, ``high`` outside.

    Args:
        low: factor while the gradient's norm changes, >= 1.
        high: factor while it does not, >= ``low``.
        threshold: relative change of the norm from window to window that counts as one.
        window: steps between decisions.
        every: steps between looks at the norm, at most ``window``.
        per_unit: decide for each unit by itself, as the paper does for each layer.

    Raises:
        ConfigError: if one of them is not legal.
    """

    low: float = 10.0
    high: float = 1000.0
    threshold: float = 0.5
    window: int = 500
    every: int = 10
    per_unit: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", checks.number("Accordion", "low", self.low, 1, hint="a factor"))
        object.__setattr__(self, "high", checks.number("Accordion", "high", self.high, self.low, hint="at least low"))
        object.__setattr__(self, "threshold", checks.number("Accordion", "threshold", self.threshold, 1e-9))
        object.__setattr__(self, "window", checks.count("Accordion", "window", self.window))
        object.__setattr__(self, "every", checks.count("Accordion", "every", self.every, self.window, "at most window"))
        checks.flag("Accordion", "per_unit", self.per_unit)

    def start(self) -> _State:
        return {"norms": [], "before": None, "window": 0, "critical": True}

    def wants(self, state: _State, step: int) -> Wanted | None:
        return Wanted() if step % self.every == 0 else None

    def decide(self, state: _State, step: int) -> Decision:
        return Decision(self.low, "critical") if state["critical"] else Decision(self.high, "steady")

    def observe(self, state: _State, observation: Observation) -> _State:
        norms = [*state["norms"], observation.norm] if math.isfinite(observation.norm) else state["norms"]
        window = observation.step // self.window
        if window == state["window"] or not norms:
            return {**state, "norms": norms}
        mean, before = math.fsum(norms) / len(norms), state["before"]
        critical = before is None or abs(mean - before) >= self.threshold * before
        return {"norms": [], "before": mean, "window": window, "critical": critical}
