"""GraVAC: the largest factor at which enough of the gradient survives, found while training.

Source    Tyagi & Swany 2023, "GraVAC: Adaptive Compression for Communication-Efficient Distributed DL Training",
          arXiv:2305.12201, algorithm 1, whose lines are named below.
Lines     L6-L10 two levels of compression   :mod:`hvd_adaptive.compress.ranking`, one sorted selection for all factors
          L7, L9 smoothed gains              :meth:`GraVAC.observe`
          L11-L25 the three branches         :meth:`GraVAC.decide`; dense is :data:`hvd_adaptive.control.DENSE`
          L29-L30 compression throughput     :meth:`GraVAC.observe`
          L32-L41 CheckGraVAC                :meth:`GraVAC._check`
Differs   - The paper's gain of 0.7 to 0.9 is seldom reached with feedback, so epsilon is lower by default; docs/gravac.md has the
            figures, also those of other gains.
          - Ranks agree: gains and times are means over ranks, and what is observed counts from the next step on, or with
            ``agreement="exact"`` before anything is sent. The paper decides on each rank by itself.
          - ``look_ahead``: all factors' gains are known at once, so the largest one that keeps epsilon is taken. The paper tries
            one candidate a window.
          - Where prose and pseudocode part, ``reading`` chooses. Prose: the smallest factor rises to the candidate just
            evaluated, and the lower of two saturated factors is kept. Pseudocode: L33 moves on before L35 raises, L38 takes the
            factor of the second highest throughput, and dense steps have a throughput, too.
          - With ``look_ahead``, throughputs count for the window they were measured in, so that factors above the ideal one get
            another chance; as in the paper, they never do without.
          - Factors end at ``max_factor``; the ideal factor is never below the smallest.
          - Throughput is smoothed by factor (L30 keeps one sample), counts steps instead of samples, and its time is the whole
            step's, with everything that was measured in it.
          - Gains are measured ever more seldom, every ``every`` steps in the end, and smoothed accordingly.
          - The smoothing factor N/100 of N ranks ends at 1.
"""

from dataclasses import dataclass
from typing import TypedDict, get_args

from hvd_adaptive import checks
from hvd_adaptive.control.advice import advice
from hvd_adaptive.control.base import DENSE, AgreementName, Controller, Decision, Observation, Wanted
from hvd_adaptive.control.gain import GAINS, GainName
from hvd_adaptive.control.never_slower import NeverSlower
from hvd_adaptive.control.policy import POLICIES, PolicyName, factors, multiple
from hvd_adaptive.control.throughput import READINGS, ReadingName, ideal, smoothed

EPSILON = 0.25
"""Measured, see docs/gravac.md."""
_MORE_SELDOM = 5
"""Between two measurements passes a fifth of the steps since the first."""


class _State(TypedDict):
    """What is known.

    Attributes:
        low: the smallest factor, the paper's theta_min.
        scale: number of the policy's multiple that makes the candidate, theta_s.
        candidate: the factor tried out.
        cap: the ideal factor once throughput is saturated, else None.
        gains: smoothed, by factor; not a number before the first.
        speeds: compression throughput, smoothed, by factor that was sent.
        first: steps done at the first observation, None before it.
        last: at the last one.
        window: number of the one under way.
        best: the largest gain at ``low`` while all of the window's steps were dense; None after one that was not.
        says: of the last observation.
    """

    low: float
    scale: int
    candidate: float
    cap: float | None
    gains: dict[float, float]
    speeds: dict[float, float]
    first: int | None
    last: int
    window: int
    best: float | None
    says: tuple[str, ...]


@dataclass(frozen=True)
class GraVAC(Controller):
    """Steer the factor by gain and throughput.

    Args:
        min_factor: the smallest factor to compress with, >= 1.
        max_factor: the largest, >= ``min_factor``.
        epsilon: the least gain that is good enough, above 0, up to 1.
        omega: relative difference of gains, and of throughputs, that counts as none, above 0.
        window: steps between changes of the range of factors.
        policy: how factors grow, ``"exponential"`` or ``"geometric"``.
        gain: ``"energy"`` as in the paper, ``"norm"``, or ``"raw"``, of the gradient before feedback; see
            :mod:`hvd_adaptive.control.gain`.
        agreement: ``"lagged"`` costs no time, for a step's observations travel beside its gradients and count from the next one
            on; ``"exact"`` waits for them before it sends.
        smoothing: weight of the newest gain, above 0, up to 1; None for N/100 of N ranks.
        per_unit: decide for each unit by itself.
        look_ahead: take any factor whose gain is good enough; False for one candidate a window, as in the paper.
        probe_dense: never slower than not compressing: time some dense steps, and go dense while compression does not pay.
        every: steps between measurements of gains, at most; they are made more often at first. 1 for each step, as in the paper.
        reading: of the paper where it contradicts itself, ``"prose"`` or ``"pseudocode"``.

    Raises:
        ConfigError: if one of them is not legal.
    """

    min_factor: float = 10.0
    max_factor: float = 1000.0
    epsilon: float = EPSILON
    omega: float = 0.01
    window: int = 500
    policy: PolicyName = "exponential"
    gain: GainName = "energy"
    agreement: AgreementName = "lagged"
    smoothing: float | None = None
    per_unit: bool = False
    look_ahead: bool = True
    probe_dense: bool = True
    every: int = 100
    reading: ReadingName = "prose"

    def __post_init__(self) -> None:
        least = checks.number("GraVAC", "min_factor", self.min_factor, 1, hint="10 keeps a tenth of the elements")
        object.__setattr__(self, "min_factor", least)
        object.__setattr__(self, "max_factor", checks.number("GraVAC", "max_factor", self.max_factor, least, hint="min_factor"))
        for name in ("epsilon", *(("smoothing",) if self.smoothing is not None else ())):
            object.__setattr__(self, name, checks.share("GraVAC", name, getattr(self, name)))
        object.__setattr__(self, "omega", checks.above_zero("GraVAC", "omega", self.omega))
        for name in ("window", "every"):
            object.__setattr__(self, name, checks.count("GraVAC", name, getattr(self, name)))
        for name, legal in {
            "policy": POLICIES,
            "gain": GAINS,
            "agreement": get_args(AgreementName),
            "reading": READINGS,
        }.items():
            checks.one_of("GraVAC", name, getattr(self, name), legal)
        for name in ("per_unit", "look_ahead", "probe_dense"):
            checks.flag("GraVAC", name, getattr(self, name))

    def prepared(self) -> Controller:
        return NeverSlower(self, self.max_factor, self.window) if self.probe_dense else self

    @property
    def factors(self) -> tuple[float, ...]:
        """The factors that the policy reaches, ascending."""
        return factors(self.policy, self.min_factor, self.max_factor)

    def start(self) -> _State:
        return {
            "low": self.min_factor,
            "scale": 1,
            "candidate": min(self.max_factor, self.min_factor * multiple(self.policy, 1)),
            "cap": None,
            "gains": {},
            "speeds": {},
            "first": None,
            "last": 0,
            "window": 0,
            "best": 0.0,
            "says": (),
        }

    def wants(self, state: _State, step: int) -> Wanted | None:
        first, last = state["first"], state["last"]
        if first is not None:
            pause = min(self.every, max(1, (last - first) // _MORE_SELDOM))
            if self.decide(state, step).branch == "dense":
                pause = min(pause, self.window)
            if 0 <= step + 1 - last < pause:
                return None
        return Wanted(self._measured(state), self.gain)

    def decide(self, state: _State, step: int) -> Decision:
        low, candidate, gains = state["low"], state["candidate"], state["gains"]
        if self.look_ahead:
            reach = self.max_factor if state["cap"] is None else state["cap"]
            good = [factor for factor in self._measured(state) if gains.get(factor, -1.0) >= self.epsilon and factor <= reach]
            candidate = max(good, default=low)
        shown = {factor: gains[factor] for factor in self._measured(state) if factor in gains}
        if candidate > low and gains.get(candidate, -1.0) >= self.epsilon:
            return Decision(candidate, "candidate", candidate, shown)
        if gains.get(low, 1.0) >= self.epsilon:
            return Decision(low, "minimum", candidate, shown)
        return Decision(DENSE, "dense", candidate, shown)

    def observe(self, state: _State, observation: Observation) -> _State:
        step, first, window = observation.step, state["first"], observation.step // self.window
        seen: _State = {**state, "says": (), "first": step if first is None else first, "last": step}
        if observation.gains:
            seen["gains"] = self._smoothed(state, observation)
        ran = seen if self.agreement == "exact" else state  # what the step that was observed is decided by
        dense = self.decide(ran, step).branch == "dense" and state["best"] is not None
        seen["best"] = max(state["best"] or 0.0, seen["gains"].get(state["low"], 0.0)) if dense else None
        seen["speeds"] = self._timed(seen, observation)
        if window == state["window"]:
            return seen
        best = seen["best"] if window == state["window"] + 1 else None  # else another controller had a say meanwhile
        return self._check({**seen, "window": window, "best": 0.0}, best)

    def says(self, state: _State) -> tuple[str, ...]:
        return state["says"]

    def _measured(self, state: _State) -> tuple[float, ...]:
        """The factors whose gains count, ascending."""
        low, candidate = state["low"], state["candidate"]
        if self.look_ahead:
            return (low, *(factor for factor in self.factors if factor > low))
        return (low, candidate) if candidate > low else (low,)

    def _smoothed(self, state: _State, observation: Observation) -> dict[float, float]:
        """L7 and L9: the gains after another measurement."""
        weight = min(1.0, observation.ranks / 100) if self.smoothing is None else self.smoothing
        if state["first"] is not None:  # one measurement stands for all steps since the last
            weight = 1.0 - (1.0 - weight) ** max(1, observation.step - state["last"])
        gains = dict(state["gains"])
        for factor, gain in zip(self._measured(state), observation.gains, strict=True):
            gains[factor] = gain if factor not in gains else gains[factor] + weight * (gain - gains[factor])
        return gains

    def _timed(self, state: _State, observation: Observation) -> dict[float, float]:
        """L29 and L30: throughputs of the factors that were sent."""
        gains = {**state["gains"], DENSE: 1.0} if self.reading == "pseudocode" else state["gains"]
        return smoothed(state["speeds"], gains, observation.seconds)

    def _check(self, state: _State, best: float | None) -> _State:
        """CheckGraVAC, L32 to L41, at the end of a window, in which the gain was ``best`` if all of it was dense."""
        low, evaluated, gains = state["low"], state["candidate"], state["gains"]
        checked: _State = {**state, "says": advice(self.window, low, best, self.epsilon)}
        if self.look_ahead:
            flat = [factor for factor in self._measured(state) if factor in gains and self._alike(gains[low], gains[factor])]
            checked["low"] = max(flat, default=low)
        elif self.reading == "prose":
            if evaluated in gains and self._alike(gains[low], gains[evaluated]):
                checked["low"] = evaluated
            checked["candidate"] = next((factor for factor in self.factors if factor > evaluated), self.max_factor)
        else:
            scale = state["scale"] + 1  # L33, before L34 looks
            if evaluated in gains and self._alike(gains[low], gains[evaluated]):
                checked["low"] = min(self.max_factor, low * multiple(self.policy, scale))
            checked["scale"] = scale
            checked["candidate"] = min(self.max_factor, checked["low"] * multiple(self.policy, scale))
        stay = ideal(state["speeds"], self.omega, self.reading)
        checked["cap"] = None if stay is None else max(checked["low"], stay)
        if self.look_ahead:
            checked["speeds"] = {}
        elif checked["cap"] is not None:
            checked["candidate"] = checked["cap"]
        return checked

    def _alike(self, low: float, other: float) -> bool:
        """L34: the gains differ by omega at most."""
        return self.omega * low >= abs(low - other)
