"""Never slower than not compressing: another controller steers while that pays, and the run is dense while it does not.

Contract  trials time dense steps, which are stock Horovod's, and compressed ones; the faster wins. A trial takes six steps, a
          run's first five, and is judged in the next, which after the first trial still runs at the factor that was tried;
          one to four trials open a run. While compression pays, one follows every twenty windows (500 steps after a single one
          that opened the run), or after one as soon as steps look slower than dense ones; while dense, after one window,
          then two, four, up to sixteen.
Source    none. GraVAC (arXiv:2305.12201) knows the throughput of dense steps, but never stays with them for it.
"""

import statistics
from dataclasses import dataclass
from typing import Any, TypedDict

from hvd_adaptive import checks
from hvd_adaptive.control.base import DENSE, AgreementName, Controller, Decision, Observation, Wanted
from hvd_adaptive.errors import ConfigError

_DENSE_STEPS = 3
"""In a trial; the first is not timed, for it also sends what the residual holds. Of the others the faster one counts."""
_COMPRESSED_STEPS = 3
"""In a trial, after the dense ones; timed likewise."""
_FIRST_DENSE_STEPS = 2
"""In a run's first trial: no residual holds anything yet, and one time is enough to begin with, for a trial soon confirms it."""
_CLEAR = (2.0, 1.5, 1.25, 1.0)
"""Ratio of seconds that settles it after one trial, two, ...; any does where a later trial confirms an earlier one."""
_LOOKS = 3
"""How many looks in a row must find steps slower than dense ones to call for a trial."""
_OFTEN = 10
"""Looks in a window, at least; the other controller may ask for more."""
_SLOWER = 1.05
_SELDOM = 20
"""Windows from trial to trial while compression pays."""
_CONFIRMED = 500
"""Steps after which a first trial is confirmed, at most: it rests on one dense step, early, when machines still warm up."""
_LONGEST = 16
"""Windows of a dense stretch, at most."""


class _State(TypedDict):
    """Where the trials are.

    Attributes:
        inner: the other controller's state.
        phase: ``"trial"``, ``"steered"`` or ``"dense"``, which end in a trial.
        trial: number of steps done when the trial under way began, or the next one will.
        judged: likewise, when the last one was judged.
        dense: seconds of dense steps, by trial.
        compressed: seconds of steps at the factor that was tried, by trial.
        looks: seconds of steered steps, the last few.
        suspect: the trial is called for by looks, so it times what the other controller decides, not the largest factor.
        stretch: windows of the next dense stretch.
        said: a dense stretch was announced.
        says: of the last observation.
    """

    inner: Any
    phase: str
    trial: int
    judged: int
    dense: list[float]
    compressed: list[float]
    looks: list[float]
    suspect: bool
    stretch: int
    said: bool
    says: tuple[str, ...]


@dataclass(frozen=True)
class NeverSlower(Controller):
    """Run dense while the steps of another controller would be slower.

    Args:
        inner: the controller that steers.
        largest: the factor to time, the largest that ``inner`` may decide, >= 1.
        window: steps by which the time from trial to trial is counted.

    Raises:
        ConfigError: if one of them is not legal.
    """

    inner: Controller
    largest: float
    window: int = 500

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Controller):
            raise ConfigError(f"NeverSlower: inner must be a controller such as Fixed(factor=100), got {self.inner!r}")
        object.__setattr__(self, "largest", checks.number("NeverSlower", "largest", self.largest, 1, hint="a factor"))
        object.__setattr__(self, "window", checks.count("NeverSlower", "window", self.window))

    @property
    def agreement(self) -> AgreementName:  # type: ignore[override]  # the other's
        return self.inner.agreement

    @property
    def per_unit(self) -> bool:  # type: ignore[override]
        return self.inner.per_unit

    def start(self) -> _State:
        return {
            "inner": self.inner.start(),
            "phase": "trial",
            "trial": 0,
            "judged": 0,
            "dense": [],
            "compressed": [],
            "looks": [],
            "suspect": False,
            "stretch": 1,
            "said": False,
            "says": (),
        }

    def wants(self, state: _State, step: int) -> Wanted | None:
        place = step - state["trial"]
        if 0 <= place < _steps(state) or (place < 0 and state["phase"] == "dense"):
            return None
        looks = place >= 0 or step % max(1, self.window // _OFTEN) == 0
        return self.inner.wants(state["inner"], step) or (Wanted() if looks else None)

    def decide(self, state: _State, step: int) -> Decision:
        place = step - state["trial"]
        # The step in which the first trial is judged is part of it, for the other controller has seen nothing yet.
        if 0 <= place < _steps(state) or (state["trial"] == 0 and place == _steps(state)):
            return Decision(DENSE if place < _dense_steps(state) else self._tried(state, step), "trial")
        if place < 0 and state["phase"] == "dense":
            return Decision(DENSE, "faster dense")
        return self.inner.decide(state["inner"], step)

    def observe(self, state: _State, observation: Observation) -> _State:
        step = observation.step - 1
        inner = state["inner"]
        factor = self.inner.decide(inner, step).factor
        seen: _State = {**state, "says": ()}
        if self.inner.wants(inner, step) is not None:
            seen["inner"] = self.inner.observe(inner, observation)
            seen["says"] = self.inner.says(seen["inner"])
        if step >= state["trial"]:
            return self._judge(seen, observation, self._tried(state, step))
        if factor != DENSE and factor in observation.seconds:
            seen["looks"] = [*state["looks"], observation.seconds[factor]][-_LOOKS:]
            slow = [seconds > _SLOWER * statistics.median(state["dense"]) for seconds in seen["looks"]]
            if len(slow) == _LOOKS and all(slow) and state["trial"] - observation.step > self.window:  # else it is near anyway
                seen["trial"] = max(observation.step, state["judged"] + self.window)
                seen["suspect"] = True
        return seen

    def says(self, state: _State) -> tuple[str, ...]:
        return state["says"]

    def _tried(self, state: _State, step: int) -> float:
        """The factor that a trial times."""
        factor = self.inner.decide(state["inner"], step).factor
        return factor if state["suspect"] and factor != DENSE else self.largest

    def _judge(self, state: _State, observation: Observation, tried: float) -> _State:
        """After a trial: which is faster, or one more."""
        seconds, step = observation.seconds, observation.step
        dense, compressed = list(state["dense"]), list(state["compressed"])
        first = state["phase"] != "trial"
        if first:
            dense, compressed = [], []
        if DENSE in seconds and tried in seconds:
            dense.append(seconds[DENSE])
            compressed.append(seconds[tried])
        judged: _State = {**state, "phase": "trial", "trial": step, "judged": step, "dense": dense, "compressed": compressed}
        if not dense:
            return judged
        ratio = statistics.median(compressed) / statistics.median(dense)
        confirmed = first and (ratio >= 1) == (state["phase"] == "dense")
        clear = 1.0 if confirmed else _CLEAR[min(len(dense), len(_CLEAR)) - 1]
        if ratio < 1 and ratio * clear <= 1:
            pause = _SELDOM * self.window
            due = step + (pause if state["trial"] else min(_CONFIRMED, pause))
            return {**judged, "phase": "steered", "trial": due, "looks": [], "suspect": False, "stretch": 1}
        if ratio < clear:
            return judged
        found = statistics.median(dense), statistics.median(compressed)
        says = () if state["said"] else (self._announcement(*found, tried, state["stretch"] * self.window),)
        return {
            **judged,
            "phase": "dense",
            "trial": step + state["stretch"] * self.window,
            "looks": [],
            "suspect": False,
            "stretch": min(_LONGEST, 2 * state["stretch"]),
            "said": True,
            "says": (*state["says"], *says),
        }

    def _announcement(self, dense: float, compressed: float, tried: float, pause: int) -> str:
        return (
            f"{type(self.inner).__name__}: compression does not pay here: a step takes {compressed:.3g} s at factor {tried:g}, "
            f"{dense:.3g} s dense, so steps are dense now; compression is tried again in {pause} steps"
        )


def _dense_steps(state: _State) -> int:
    return _DENSE_STEPS if state["trial"] else _FIRST_DENSE_STEPS


def _steps(state: _State) -> int:
    return _dense_steps(state) + _COMPRESSED_STEPS
