"""Units that are decided for together: what one rank has to tell of them, and what all ranks make of it."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hvd_adaptive.control import Decision, Observation, Wanted
from hvd_adaptive.control.gain import gain
from hvd_adaptive.measure import Measured


@dataclass
class Group:
    """Units that are decided for together.

    Attributes:
        units: their numbers.
        state: the controller's.
        wanted: of the step under way.
        decision: for it; None while it waits for what is observed first.
        measured: by unit, in it.
        used: seconds of steps by the factor they ran at, since the last observation.
        last: the factor of the last step.
        steps: decided since the last observation.
        bytes_sent: by this rank in them.
    """

    units: tuple[int, ...]
    state: Any
    wanted: Wanted | None = None
    decision: Decision | None = None
    measured: dict[int, Measured] = field(default_factory=dict)
    used: dict[float, list[float]] = field(default_factory=dict)
    last: float | None = None
    steps: int = 0
    bytes_sent: int = 0

    def told(self, wanted: Wanted) -> list[float]:
        """What this rank observed: gains, norm, bytes of a step, and seconds of one by factor; NaN for what it does not know."""
        measured = self.measured.values()
        healthy = len(measured) == len(self.units) and all(len(m.kept) == len(wanted.factors) for m in measured)
        whole = sum(m.whole for m in measured) if healthy else math.nan
        kept = [sum(m.kept[n] for m in measured) if healthy else math.nan for n in range(len(wanted.factors))]
        norm = math.sqrt(sum(m.gradient for m in measured)) if healthy else math.nan
        # Decisions are agreed, so all ranks list the same factors in the same order.
        seconds = [statistics.median_low(self.used[factor] or [math.nan]) for factor in sorted(self.used)]
        return [*(gain(wanted.gain, one, whole) for one in kept), norm, self.bytes_sent / max(1, self.steps), *seconds]

    def observed(self, wanted: Wanted, means: Iterator[float], step: int, ranks: int) -> Observation:
        """The same from the means over ranks, after ``step`` steps; the next observation starts anew."""
        gains = tuple(next(means) for _ in wanted.factors)
        norm, bytes_sent = next(means), next(means)
        seconds = {factor: next(means) for factor in sorted(self.used)}
        self.used, self.steps, self.bytes_sent = {}, 0, 0
        return Observation(
            step=step,
            ranks=ranks,
            gains=gains if all(map(math.isfinite, gains)) else (),
            norm=norm,
            bytes_sent=bytes_sent,
            seconds={factor: taken for factor, taken in seconds.items() if math.isfinite(taken)},
        )
