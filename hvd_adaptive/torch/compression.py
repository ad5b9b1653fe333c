"""The object that stock Horovod takes as ``compression=``."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import horovod.torch as hvd
import torch
from horovod.torch.compression import Compressor as HorovodCompressor

from hvd_adaptive.compress import Compressor
from hvd_adaptive.control import REFUSED, Controller, agree, largest
from hvd_adaptive.engine import Engine, Flight
from hvd_adaptive.errors import ConfigError, HvdAdaptiveError, StateError
from hvd_adaptive.exchange import Exchange
from hvd_adaptive.feedback import Feedback
from hvd_adaptive.granularity import Parameter, Unit
from hvd_adaptive.monitor import Meter, Monitor, Stats
from hvd_adaptive.ops.torch_ops import TorchOps
from hvd_adaptive.plan import Options, UnitPlan, build
from hvd_adaptive.torch import state, token
from hvd_adaptive.torch.collective import HorovodCollective
from hvd_adaptive.torch.parameters import Finder, NamedParameters, checked, described, role, shaped_like
from hvd_adaptive.torch.steps import Place, Steps

_built = defaultdict[int, int](int)
"""How many objects were built by the number of their process set; it names their collectives."""


@dataclass(frozen=True)
class _Context:
    """What ``decompress`` needs to know of what ``compress`` returned."""

    place: Place
    gradient: torch.Tensor
    riding: Flight | None


class TorchCompression(HorovodCompressor):  # type: ignore[misc]
    """Base of :class:`LayerWise`, :class:`EntireModel` and :class:`Bucketed`: pass an instance as ``compression=``.

    Building one is collective: every rank of the process set must do so, with the same arguments and in the same order.

    Args:
        named_parameters: ``model.named_parameters()``, as for ``DistributedOptimizer``. Frozen parameters are left alone.
        compressor: the method, such as ``TopK(factor=100)``.
        controller: decides the factor from step to step; None keeps the compressor's.
        feedback: None for what the method calls for, True or False to force error feedback, or one such as ``Residual(0.9)``.
        exchange: ``"auto"``, the name of one that is legal for the method, or an exchange such as ``TwoSided(master=...)``.
        dense_below: parameters of fewer elements go dense; None for the scope's default.
        exclude: name patterns (``"*.bias"``) of parameters that go dense.
        process_set: the optimizer's; all ranks by default.
        seed: of all random choices.
        monitor: told of every unit in every step.

    Raises:
        ConfigError: if an argument is not legal, or ``hvd.init()`` was not called.
        UnsupportedError: if a parameter is complex, sparse or no float.
        AgreementError: on every rank, if ranks were given different arguments.
    """

    scope: ClassVar[str]
    default_dense_below: ClassVar[int] = 0

    def __init__(
        self,
        named_parameters: NamedParameters,
        compressor: Compressor,
        *,
        controller: Controller | None = None,
        feedback: bool | Feedback | None = None,
        exchange: str | Exchange = "auto",
        dense_below: int | None = None,
        exclude: str | Iterable[str] = (),
        process_set: hvd.ProcessSet = hvd.global_process_set,
        seed: int = 0,
        monitor: Monitor | None = None,
    ) -> None:
        self._collective = HorovodCollective(process_set)
        try:
            options = Options(
                compressor=compressor,
                controller=controller,
                feedback=feedback,
                exchange=exchange,
                dense_below=self.default_dense_below if dense_below is None else dense_below,
                exclude=tuple(exclude) if isinstance(exclude, Iterable) and not isinstance(exclude, str) else (exclude,),
                seed=seed,
            )
            self._meter = Meter(monitor)
            plans = self._prepare(named_parameters, options)
        except HvdAdaptiveError as error:
            self._meet({REFUSED: str(error)})  # so that ranks with better arguments do not wait for this one
            raise
        engine = Engine(TorchOps(), self._collective, seed, self._meet(self._description), self._meter)
        self._steps = Steps(engine, plans, controller, self._meter)
        self._proven: set[str] = set()
        self._weight = 1.0

    def _prepare(self, named_parameters: NamedParameters, options: Options) -> tuple[UnitPlan, ...]:
        """Check what was given and plan the units."""
        given = checked(named_parameters)
        self._parameters = {name: p for name, p in given.items() if p.requires_grad}
        if not self._parameters:
            raise ConfigError("every parameter is frozen (requires_grad=False); there is no gradient to compress")
        plans = build([described(*item) for item in self._parameters.items()], self._units, options, self._collective.size)
        self._places = {
            slot.parameter.name: Place(number, slot, plan.rides, plan.untouched and slot.parameter.dtype != "bfloat16")
            for number, plan in enumerate(plans)
            for slot in plan.unit.slots
        }
        units = {slot.parameter.name: plan.unit.name for plan in plans for slot in plan.unit.slots}
        self._finder = Finder(self._parameters, options.excluded(list(self._parameters)))
        self._description = {"scope": self.scope, **options.described()} | {
            f"parameter {name!r}": role(number, parameter, units.get(name))
            for number, (name, parameter) in enumerate(given.items())
        }
        return plans

    def _meet(self, description: dict[str, Any]) -> str:
        """Make sure that all ranks build the same object; returns the name they all give it."""
        set_id = self._collective.process_set.process_set_id
        if self._collective.member:
            ops, name = TorchOps(), f"hvd_adaptive.{set_id}.handshake"
            agree(ops, self._collective, description | {"ranks": self._collective.ranks}, name)
            # Horovod gives the number of a removed process set to the next one, whose ranks may have counted differently.
            _built[set_id] = largest(ops, self._collective, _built[set_id], f"{name}.number") + 1
        return f"hvd_adaptive.{set_id}.{_built[set_id]}"

    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        """Groups parameters into units."""
        raise NotImplementedError

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Called by Horovod with a parameter's gradient. Returns the tensor it shall allreduce, and a context."""
        name = self._finder.find(tensor)
        if name is None:
            return tensor, None
        self._steps.arrive(name)
        place = self._places[name]
        if place.untouched and tensor.is_contiguous():
            return tensor, place
        return self._compress(place, tensor)

    @torch.no_grad()
    def _compress(self, place: Place, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        # A rank outside the process set, which its optimizer should not have called, takes part in Horovod's collectives only.
        riding = self._steps.take(place, tensor) if place.rides or self._collective.member else None
        if riding is not None:
            assert riding.round is not None  # noqa: S101 - what rides is in its first and only round
            sent = riding.round.array
            # Horovod reduces in place, but what is kept back is told from what was sent.
            return sent.clone() if riding.plan.feedback.remembers else sent, _Context(place, tensor, riding)
        sign = token.make(tensor, hvd.rank(), self._steps.done, first=place.slot.parameter.name not in self._proven)
        self._meter.add_bytes(sign.nbytes)
        return sign, _Context(place, tensor, None)

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Called by Horovod with what its allreduce made of :meth:`compress`'s tensor. Returns the gradient to use."""
        if ctx is None:  # a sparse gradient, which Horovod allreduced by itself
            self._finder.check_sparse()
            return tensor
        step = self._steps.current
        if not step.returned:
            if not self._collective.member:
                raise token.other_ranks(self._collective.ranks)
            self._check_complete(step.arrived)
        gradient = self._steps.give_untouched(ctx, tensor) if isinstance(ctx, Place) else self._decompress(tensor, ctx)
        step.returned += 1
        if step.returned == len(step.arrived):
            self._steps.finish()
        return gradient

    @torch.no_grad()
    def _decompress(self, tensor: torch.Tensor, ctx: _Context) -> torch.Tensor:
        if ctx.riding is not None:
            mean = self._steps.give_ridden(ctx.place, ctx.riding, tensor)
        else:
            self._read_token(tensor, ctx.place.slot.parameter.name)
            mean = self._steps.give(ctx.place, self._weight)
        return shaped_like(mean, ctx.gradient)

    def _read_token(self, sign: torch.Tensor, name: str) -> None:
        """Learn how Horovod scales this step; of each parameter's first token also whether all agree."""
        first_of_step = self._steps.current.means is None
        if not first_of_step and name in self._proven:
            return
        weight = token.weight(sign, self._collective.ranks, self._steps.done)
        if first_of_step:
            self._weight = weight
        elif weight != self._weight:
            raise ConfigError(
                f"the gradient of {name!r} is reduced by another op= than others of this step; give each optimizer a compression "
                "object of its own"
            )
        self._proven.add(name)

    def _check_complete(self, arrived: set[str]) -> None:
        if len(arrived) == len(self._parameters):
            return
        self._finder.check_sparse()
        if not arrived:
            raise StateError("the object was reset between backward() and step(), and has forgotten the gradients that came")
        missing = [name for name in self._finder.dense_names() if name not in arrived]
        if missing:
            raise ConfigError(
                f"the optimizer handed over no gradient of {', '.join(map(repr, missing[:5]))} ({len(missing)} in all); build "
                "the compression object from the parameters that the optimizer holds, each optimizer with its own object"
            )

    def stats(self) -> Stats:
        """Totals since this object was built or reset, on this rank."""
        note = ""
        if not self._collective.member:
            note = "this rank is not in the process set, so it compressed nothing"
        elif self._collective.world == 1:
            note = "1 rank: Horovod calls no compression, so nothing was compressed or sent"
        return self._meter.stats(self._collective.size, self._steps.done, note)

    def reset(self) -> None:
        """Forget residuals, steps and totals, as if just built; a step that an error cut short is dropped."""
        self._steps.restart()
        self._proven.clear()
        self._meter.reset()

    def state_dict(self) -> dict[str, Any]:
        """What an interrupted run needs to go on as if it had not been: residuals, steps, the controller's state.

        It belongs to this rank: every rank saves and loads its own.

        Raises:
            StateError: between ``backward()`` and ``step()``.
        """
        state.check_between_steps(bool(self._steps.current.arrived))
        memory = self._steps.memory(self._collective.size)
        return state.pack(self._description, self._collective, self._steps.done, memory, self._steps.control)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
            StateError: if another configuration, model, rank or number of ranks saved it, which the message then names, or
                between ``backward()`` and ``step()``.
        """
        state.check_between_steps(bool(self._steps.current.arrived))
        state.check(saved, self._description, self._collective, self._steps.remembered(self._collective.size))
        devices = {name: parameter.device for name, parameter in self._parameters.items()}
        self._steps.restore(saved["steps"], saved["control"], saved["memory"], devices)
        self._proven.clear()
