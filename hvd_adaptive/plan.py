"""What a user asked for, checked, and how each unit is treated as a result. Knows no framework."""

import dataclasses
import numbers
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from hvd_adaptive.compress import Compressor, Identity
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.control import DENSE, Controller
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.exchange import NAMES, Exchange, Gather, Network, Reduce, TwoSided, choose, in_one_round, pick
from hvd_adaptive.feedback import Feedback, NoFeedback, Residual
from hvd_adaptive.granularity import Parameter, Unit, layer_wise

Scope: TypeAlias = Callable[[Sequence[Parameter]], tuple[Unit, ...]]
"""Groups parameters into units."""


@dataclass(frozen=True)
class UnitPlan:
    """How one unit is treated: the same on every rank."""

    unit: Unit
    compressor: Compressor
    exchange: Exchange
    feedback: Feedback
    dense: bool = False
    """True if it is left as it is by choice: excluded, or too small."""
    watched: bool = False
    """True if it is looked at for NaN though it travels untouched, because others are compressed."""

    @property
    def rides(self) -> bool:
        """True if the payload is one summable array of one parameter, which Horovod's own allreduce can carry."""
        return isinstance(self.exchange, Reduce) and len(self.unit.slots) == 1 and in_one_round(self.compressor)

    @property
    def in_one_round(self) -> bool:
        """True if one collective does it all."""
        return isinstance(self.exchange, Gather) or (isinstance(self.exchange, Reduce) and in_one_round(self.compressor))

    @property
    def untouched(self) -> bool:
        """True if gradients are reduced as they are and nothing is kept: stock Horovod's way."""
        return isinstance(self.exchange, Reduce) and isinstance(self.compressor, Identity) and self.feedback == NoFeedback()

    def remembers(self, size: int) -> dict[str, int]:
        """Lengths of the vectors that a checkpoint must hold, by name."""
        own = dict.fromkeys(self.feedback.remembers, self.unit.size)
        return own | self.exchange.remembers(self.compressor, self.unit.shape, size)

    @property
    def checks(self) -> bool:
        """True if NaN and infinity would be lost, or stay in the residual, unless looked for."""
        return bool(self.feedback.remembers) or not self.exchange.carries_all(self.compressor)

    @property
    def ranks_whole(self) -> bool:
        """True if what is sent can be taken from one ranking of the unit."""
        return isinstance(self.compressor, Sparse) and not isinstance(self.exchange, TwoSided)

    def at(self, factor: float) -> "UnitPlan":
        """The same plan with another factor; at :data:`DENSE` an allreduce of all there is."""
        if factor == DENSE:
            return dataclasses.replace(self, compressor=Identity(), exchange=Reduce())
        return dataclasses.replace(self, compressor=dataclasses.replace(self.compressor, factor=factor))  # type: ignore[type-var]


@dataclass(frozen=True)
class Options:
    """Everything but the parameters and the scope.

    Args:
        compressor: the method, an instance.
        controller: decides the factor; None leaves the compressor's own.
        feedback: None for what the method calls for, True or False to force error feedback, or a feedback.
        exchange: ``"auto"``, or an exchange that is legal for the compressor, or its name.
        dense_below: parameters of fewer elements go dense.
        exclude: name patterns (``"*.bias"``) of parameters that go dense.
        seed: of all random choices.
        network: by which ``"auto"`` chooses where that matters; None to measure it.

    Raises:
        ConfigError: if one of them is not legal.
    """

    compressor: Compressor
    controller: Controller | None
    feedback: bool | Feedback | None
    exchange: str | Exchange
    dense_below: int
    exclude: tuple[str, ...]
    seed: int
    network: Network | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, Compressor):
            raise ConfigError(f"compressor must be an instance such as TopK(factor=100), got {self.compressor!r}")
        choose(self.compressor, self.exchange)
        if self.controller is not None:
            if not isinstance(self.controller, Controller):
                raise ConfigError(
                    f"controller must be one instance such as GraVAC(max_factor=1000) or Fixed(100), got {self.controller!r}"
                )
            if not hasattr(self.compressor, "factor"):
                raise ConfigError(
                    f"{self.compressor!r} has no factor for a controller to change; use one such as TopK(factor=100)"
                )
        if not (self.network is None or isinstance(self.network, Network)):
            raise ConfigError(f"network must be None or such as Network(latency=50e-6, bandwidth=125e6), got {self.network!r}")
        if not (self.feedback is None or isinstance(self.feedback, bool) or _is_instance(self.feedback, "absorb")):
            raise ConfigError(f"feedback must be None, True, False or an instance such as Residual(), got {self.feedback!r}")
        if self.compressor.votes and _feedback(self).remembers:
            raise ConfigError(
                f"{self.compressor!r} sends votes without a magnitude, so what it dropped cannot be told and added later; leave "
                "feedback out, or use a method such as SignSGD(scaled=True)"
            )
        for name, least in (("dense_below", 0), ("seed", None)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or (least is not None and value < least):
                raise ConfigError(f"{name} must be an integer{'' if least is None else f' >= {least}'}, got {value!r}")
            object.__setattr__(self, name, int(value))
        if not all(isinstance(pattern, str) for pattern in self.exclude):
            raise ConfigError(f"exclude must hold name patterns such as '*.bias', got {self.exclude!r}")

    def excluded(self, names: Sequence[str]) -> set[str]:
        """Those of ``names`` that a pattern in ``exclude`` matches.

        Raises:
            ConfigError: if a pattern matches none.
        """
        for pattern in self.exclude:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(f"exclude pattern {pattern!r} matches none of the parameters {', '.join(names)}")
        return {name for name in names if any(fnmatchcase(name, pattern) for pattern in self.exclude)}

    def described(self) -> dict[str, Any]:
        """The options as text that compares equal on ranks that behave alike."""
        meant = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "network"}
        meant |= {"exchange": choose(self.compressor, self.exchange), "feedback": _feedback(self)}
        return {name: _text(value) for name, value in meant.items()}


def _is_instance(value: object, method: str) -> bool:
    """True for an object with the method, false for a class, which users pass by mistake."""
    return hasattr(value, method) and not isinstance(value, type)


def _text(value: object) -> str:
    """``repr`` without addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _feedback(options: Options) -> Feedback:
    """The feedback asked for: a method's own where it is left to the method, or asked for and not none."""
    asked, own = options.feedback, options.compressor.feedback
    if asked is None:
        return own
    if asked is True:
        return own if own.remembers else Residual()
    return NoFeedback() if asked is False else asked


def _check_contraction(compressor: Compressor, n: int) -> None:
    """
    Raises:
        ConfigError: if error feedback was asked for where the method calls for none, and the residual would grow without end.
    """
    if not compressor.feedback.remembers and compressor.omega(n) >= 1:
        raise ConfigError(
            f"feedback=True: the error of {compressor!r} may exceed the gradient of a unit of {n} elements (omega is "
            f"{compressor.omega(n):.3g}, and must be below 1), so a residual would grow from step to step; leave feedback out, "
            "for the method is unbiased, or use more levels or a smaller bucket (feedback=Residual() insists)"
        )


def _plan(unit: Unit, options: Options, ranks: int) -> UnitPlan:
    """Of a unit that is not dense by choice; yet stock Horovod's way where it drops nothing, and nothing else is asked for."""
    compressor, feedback = options.compressor, _feedback(options)
    asked = options.exchange != "auto" or options.feedback is not None or options.controller is not None
    if not asked and getattr(compressor, "factor", None) == 1 and feedback in (Residual(), NoFeedback()):
        return UnitPlan(unit, Identity(), Reduce(), NoFeedback())
    return UnitPlan(unit, compressor, _exchange(options, unit.size, ranks), feedback)


def _exchange(options: Options, n: int, ranks: int) -> Exchange:
    """Of a unit of ``n`` elements; the method's own where ``"auto"`` would have to know the network."""
    name = pick(options.compressor, n, ranks, options.network) if options.exchange == "auto" else None
    return choose(options.compressor, options.exchange) if name is None else NAMES[name]


def build(parameters: Sequence[Parameter], scope: Scope, options: Options, ranks: int = 1) -> tuple[UnitPlan, ...]:
    """Plans that together cover ``parameters``: those to compress grouped by ``scope``, the others dense, each on its own.

    Raises:
        ConfigError: if a pattern in ``exclude`` matches nothing, or the exchange cannot serve the compressor among ``ranks``.
    """
    excluded = options.excluded([parameter.name for parameter in parameters])
    least = max(1, options.dense_below)  # a parameter without elements has nothing to select
    dense = [parameter for parameter in parameters if parameter.name in excluded or parameter.size < least]
    left = {parameter.name for parameter in dense}
    compressed = [parameter for parameter in parameters if parameter.name not in left]
    compressor = options.compressor
    choose(compressor, options.exchange).check(compressor, ranks)
    plans = [_plan(unit, options, ranks) for unit in scope(compressed)]
    if options.feedback is True and plans:
        _check_contraction(compressor, max(plan.unit.size for plan in plans))
        if options.controller is not None and not compressor.biased:
            raise ConfigError(
                f"feedback=True: at a controller's factors the error of {compressor!r} may exceed the gradient, so a residual "
                "would grow from step to step; leave feedback out, for the method is unbiased (feedback=Residual() insists)"
            )
    taken = {plan.unit.name for plan in plans}
    watched = not all(plan.untouched for plan in plans)
    for unit in layer_wise(dense):
        name = f"{unit.name} (dense)" if unit.name in taken else unit.name
        plans.append(
            UnitPlan(dataclasses.replace(unit, name=name), Identity(), Reduce(), NoFeedback(), dense=True, watched=watched)
        )
    return tuple(plans)
