"""The object that stock Horovod takes as ``compression=``, as far as no framework matters."""

import contextlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from horovod.common.process_sets import ProcessSet, global_process_set

from hvd_adaptive.binding import choice, state
from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.binding.gather_now import gather_now
from hvd_adaptive.binding.memories import Storage
from hvd_adaptive.binding.step import Place
from hvd_adaptive.binding.steps import Steps
from hvd_adaptive.binding.token import Tokens
from hvd_adaptive.binding.watch import Watch
from hvd_adaptive.compress import Compressor
from hvd_adaptive.control import REFUSED, Controller, agree, largest
from hvd_adaptive.engine import Engine
from hvd_adaptive.errors import ConfigError, HvdAdaptiveError
from hvd_adaptive.exchange import Exchange, Network
from hvd_adaptive.feedback import Feedback
from hvd_adaptive.granularity import Parameter, Unit
from hvd_adaptive.monitor import JsonLines, Meter, Monitor, Stats
from hvd_adaptive.ops import Ops, host_ops
from hvd_adaptive.plan import Options, UnitPlan, build
from hvd_adaptive.steering import Steering

_built = defaultdict[int, int](int)
"""How many objects were built by the number of their process set; it names their collectives."""


class Compression(ABC):
    """Base of every framework's compression objects.

    Building one is collective: every rank of the process set must do so, with the same arguments and in the same order.

    Args:
        parameters: what is trained, as the framework hands it over.
        compressor: the method, such as ``TopK(factor=100)``.
        controller: decides the factor from step to step; None keeps the compressor's.
        feedback: None for what the method calls for, True or False to force error feedback, or one such as ``Residual(0.9)``.
        exchange: ``"auto"``, the name of one that is legal for the method, or an exchange such as ``TwoSided(master=...)``.
        dense_below: parameters of fewer elements go dense; None for the scope's default.
        exclude: name patterns (``"*.bias"``) of parameters that go dense.
        process_set: the optimizer's; all ranks by default.
        seed: of all random choices.
        monitor: told of every unit in every step, on this rank.
        network: by which ``exchange="auto"`` chooses among many ranks; None to measure it, where it matters.
        log: file to which rank 0 of the process set appends the same as lines of JSON.

    Raises:
        ConfigError: if an argument is not legal, or ``hvd.init()`` was not called.
        UnsupportedError: if a parameter is none that Horovod reduces.
        AgreementError: on every rank, if ranks were given different arguments.
    """

    scope: ClassVar[str]
    default_dense_below: ClassVar[int]
    lends: ClassVar[bool] = True
    """True if Horovod's own allreduce may carry a payload or, in some steps, a gradient."""

    def __init__(
        self,
        parameters: Any,
        compressor: Compressor,
        *,
        controller: Controller | None = None,
        feedback: bool | Feedback | None = None,
        exchange: str | Exchange = "auto",
        dense_below: int | None = None,
        exclude: str | Iterable[str] = (),
        process_set: ProcessSet = global_process_set,
        seed: int = 0,
        network: Network | None = None,
        monitor: Monitor | None = None,
        log: str | Path | None = None,
    ) -> None:
        self._collective = self._join(process_set)
        self._ops = self._backend()
        host_ops.load()
        self._watch = Watch(self._collective.world_rank)
        self._monitor, self._log = monitor, log
        with self._refusal_told():
            self._options = Options(
                compressor=compressor,
                controller=controller,
                feedback=feedback,
                exchange=exchange,
                dense_below=self.default_dense_below if dense_below is None else dense_below,
                exclude=tuple(exclude) if isinstance(exclude, Iterable) and not isinstance(exclude, str) else (exclude,),
                seed=seed,
                network=network,
            )
            self._given = self._read(parameters, self._options)
        self._assemble()

    def _assemble(self) -> None:
        """Plan for the ranks there are, and meet them."""
        with self._refusal_told():
            self._meter = Meter(*self._monitors())
            plans = self._prepare()
        label = self._meet(self._description)
        if self._weighs and self._collective.member:
            options = choice.informed(self._options, self._ops, self._collective, label)
            plans = self._planned(options)
            choice.tell(plans, options, self._collective)
        engine = Engine(self._ops, self._collective, self._options.seed, label, self._meter)
        self._storage = self._checkpoints()
        steering = self._steering(self._options.controller, plans, label)
        self._steps = Steps(engine, plans, steering, self._meter, self._storage, lends=self.lends)
        self._tokens = Tokens(self._collective.ranks, self._collective.world_rank)

    @contextlib.contextmanager
    def _refusal_told(self) -> Iterator[None]:
        """Tell other ranks of an error in the block, so that those with better arguments do not wait for this one."""
        try:
            yield
        except HvdAdaptiveError as error:
            self._meet({REFUSED: str(error)})
            raise

    def _monitors(self) -> list[Monitor]:
        monitors = [] if self._monitor is None else [self._monitor]
        if self._log is not None and self._collective.rank == 0:
            monitors.append(JsonLines(self._log))
        return monitors

    @abstractmethod
    def _join(self, process_set: ProcessSet) -> RankSet:
        """The ranks of ``process_set``."""

    @abstractmethod
    def _backend(self) -> Ops:
        """The framework's array functions."""

    @abstractmethod
    def _checkpoints(self) -> Storage:
        """How the framework's checkpoints hold vectors."""

    @abstractmethod
    def _read(self, parameters: Any, options: Options) -> list[tuple[Parameter, bool]]:
        """What was given, checked, in order; each with whether it is trained."""

    @abstractmethod
    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        """Groups parameters into units."""

    def _prepare(self) -> tuple[UnitPlan, ...]:
        """Plan the units."""
        if not any(is_trained for _, is_trained in self._given):
            raise ConfigError("every parameter is frozen (requires_grad=False, trainable=False); no gradient to compress")
        plans = self._planned(self._options)
        self._places = {slot.parameter.name: Place(number, slot) for number, plan in enumerate(plans) for slot in plan.unit.slots}
        units = {slot.parameter.name: plan.unit.name for plan in plans for slot in plan.unit.slots}
        self._description = {"scope": self.scope, **self._options.described()} | {
            f"parameter {parameter.name!r}": _role(number, parameter, units.get(parameter.name))
            for number, (parameter, _) in enumerate(self._given)
        }
        self._weighs = choice.weighs(plans, self._options, self._collective.size)
        if self._weighs:
            self._description["exchange"] = f"auto, network {self._options.network or 'as measured'}"
        return plans

    def _planned(self, options: Options) -> tuple[UnitPlan, ...]:
        trained = [parameter for parameter, is_trained in self._given if is_trained]
        return build(trained, self._units, options, self._collective.size)

    def _meet(self, description: dict[str, Any]) -> str:
        """Make sure that all ranks build the same object; returns the name they all give it."""
        set_id = self._collective.process_set.process_set_id
        if self._collective.member:
            name = f"hvd_adaptive.{set_id}.handshake"
            agree(self._ops, self._collective, description | {"ranks": self._collective.ranks}, name)
            # Horovod gives the number of a removed process set to the next one, whose ranks may have counted differently.
            _built[set_id] = largest(self._ops, self._collective, _built[set_id], f"{name}.number") + 1
        return f"hvd_adaptive.{set_id}.{_built[set_id]}"

    def _steering(self, controller: Controller | None, plans: Sequence[UnitPlan], label: str) -> Steering | None:
        if controller is None:
            return None
        quick = gather_now(self._collective) if controller.agreement == "exact" and self._collective.member else None
        return Steering(controller, plans, self._ops, self._collective, label, self._meter, quick)

    def stats(self) -> Stats:
        """Totals since this object was built or reset, on this rank."""
        note = ""
        if not self._collective.member:
            note = "this rank is not in the process set, so it compressed nothing"
        elif self._collective.world == 1:
            note = "1 rank: Horovod calls no compression, so nothing was compressed or sent"
        return self._meter.stats(self._collective.size, self._steps.done, note)

    def reset(self) -> None:
        """Forget residuals, steps and totals, as if just built, on all ranks or none. A step that was cut short is dropped."""
        self._watch.rest()
        self._meter.reset()
        self._steps.restart()
        self._tokens.restart()

    def state_dict(self) -> dict[str, Any]:
        """What an interrupted run needs to go on as if it had not been: residuals, steps, the controller's state.

        It belongs to this rank: every rank saves and loads its own.

        Raises:
            StateError: within a step, when gradients have come and were not given back.
        """
        state.check_between_steps(bool(self._steps.current.arrived))
        memory = self._steps.memories.saved(self._collective.size) if self._steps.done else {}
        return state.pack(self._description, self._collective, self._steps.done, memory, self._steps.control)

    def load_state_dict(self, saved: dict[str, Any], *, strict: bool = True) -> None:
        """Continue from :meth:`state_dict`, on all ranks or none.

        Args:
            saved: the state of this rank. On another number of ranks, that of any: the controller's state is the same on all.
            strict: False to go on with residuals of zero where another rank or number of ranks saved the state.

        Raises:
            StateError: if another configuration, model, rank or number of ranks saved it, which the message then names, or
                within a step.
        """
        state.check_between_steps(bool(self._steps.current.arrived))
        remembered = self._steps.memories.remembered(self._collective.size)
        first, form = self._steps.first_control, self._storage.form
        own = state.check(saved, self._description, self._collective, remembered, first, form, strict=strict)
        self._steps.restore(saved["steps"], saved["control"], saved["memory"] if own else {})
        self._tokens.restart()


def _role(number: int, parameter: Parameter, unit: str | None) -> str:
    """How a parameter is treated, as text for comparing ranks and saved states; ``unit`` is None if it is frozen."""
    treated = "frozen" if unit is None else f"in unit {unit!r}"
    return f"number {number}, shape {parameter.shape}, {parameter.dtype}, {treated}"
