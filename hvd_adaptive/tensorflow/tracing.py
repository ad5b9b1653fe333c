"""Whether a reduction that Horovod traces fits the compression object, told before the first step runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.plan import UnitPlan
from hvd_adaptive.tensorflow.caller import Call


class Handed(NamedTuple):
    """Gradients that Horovod hands over together.

    Attributes:
        names: of their variables.
        expected: how many gradients the whole step brings.
        silent: numbers of the units of which none comes, as the loss does not depend on their variables.
    """

    names: list[str]
    expected: int
    silent: tuple[int, ...]


class Checks:
    """Remembers what the first trace looked like.

    Args:
        variables: of the compression object, by name.
        excluded: names of those whose gradients may be sparse.
        plans: of the units.
        exact: a controller waits for the gains of all units before any is sent.
    """

    def __init__(
        self, variables: Mapping[str, tf.Variable], excluded: set[str], plans: Sequence[UnitPlan], *, exact: bool
    ) -> None:
        self._names = {id(variable): name for name, variable in variables.items()}
        self._excluded = excluded
        self._plans = plans
        self._exact = exact
        self.restart()

    def restart(self) -> None:
        """Forget the first trace: nothing is held back of it."""
        self._user: str | None = None
        self._expected: list[str] | None = None
        self._reduction: Any = None
        self._left: list[tuple[Any, str]] = []

    def handed(self, call: Call) -> Handed:
        """What is handed over in a call.

        Raises:
            ConfigError: if they are others than the object's, or not all that must come together do.
            UnsupportedError: if a gradient is sparse, or Adasum combines them.
        """
        if call.op == hvd.Adasum:
            raise UnsupportedError(
                "op=hvd.Adasum combines whole updates, and compression would change what it measures; use op=hvd.Average or "
                "op=hvd.Sum"
            )
        self._check_user(call)
        self._check_variables(call)
        expected = self._with_gradient(call)
        names = self._names_of(call)
        if not call.whole:
            self._check_parts(names, expected)
        return Handed(names, len(expected), self._silent(expected))

    def _names_of(self, call: Call) -> list[str]:
        """Of the variables. Those that are added share a gradient, which is handed over for each of them in turn."""
        if call.reduction is not self._reduction:
            self._left = list(zip(call.gradients, self._all(call), strict=True))
        names = []
        for tensor in call.tensors:
            place = next(place for place, (gradient, _) in enumerate(self._left) if gradient is tensor)
            names.append(self._left.pop(place)[1])
        # Held no longer than needed, for a gradient holds the graph it is traced in.
        self._reduction = call.reduction if any(isinstance(gradient, tf.Tensor) for gradient, _ in self._left) else None
        return names

    def _silent(self, expected: list[str]) -> tuple[int, ...]:
        silent = set(self._names.values()) - set(expected) - self._excluded
        return tuple(
            number
            for number, plan in enumerate(self._plans)
            if not plan.untouched and all(slot.parameter.name in silent for slot in plan.unit.slots)
        )

    def _all(self, call: Call) -> list[str]:
        return [self._names[id(variable)] for variable in call.variables]

    def _check_user(self, call: Call) -> None:
        if self._user not in {None, call.user}:
            raise ConfigError(
                f"{self._user} and {call.user} use one compression object, which would compress twice in a step; give each an "
                "object of its own, or leave one out: an optimizer that reduces gradients needs no distributed tape"
            )
        self._user = call.user

    def _check_variables(self, call: Call) -> None:
        strange = [variable.name for variable in call.variables if id(variable) not in self._names]
        if strange:
            raise ConfigError(
                f"gradients of {_listed(strange)} are handed over, of which this compression object knows nothing; build it from "
                "the variables that the tape or the optimizer gets, each tape or optimizer with an object of its own"
            )
        twice = [name for name, times in Counter(self._all(call)).items() if times > 1]
        if twice:
            raise ConfigError(f"the tape or the optimizer gets {_listed(twice)} more than once; list each variable once")
        absent = sorted(set(self._names.values()) - set(self._all(call)))
        if absent:
            raise ConfigError(
                f"the tape or the optimizer does not get {_listed(absent)}, for which this compression object was built; build "
                "it from the same variables, each tape or optimizer with an object of its own"
            )

    def _with_gradient(self, call: Call) -> list[str]:
        """Names of those that have a dense gradient."""
        for name, gradient in zip(self._all(call), call.gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices) and name not in self._excluded:
                raise UnsupportedError(
                    f"the gradient of {name!r} is tf.IndexedSlices: Horovod sends sparse gradients past any compression; pass "
                    "sparse_as_dense=True to Horovod, or exclude the variable"
                )
        expected = [name for name, one in zip(self._all(call), call.gradients, strict=True) if isinstance(one, tf.Tensor)]
        if self._expected is None:
            self._expected = expected
        if sorted(expected) != sorted(self._expected):
            differing = sorted(set(expected) ^ set(self._expected))
            raise ConfigError(
                f"in this trace {_listed(differing)} have a gradient and in an earlier one had none, or the reverse; what is "
                "held back of them would be lost: give each loss a compression object of its own variables"
            )
        return expected

    def _check_parts(self, names: list[str], expected: list[str]) -> None:
        """What holds where gradients come one by one, or in several groups."""
        how = "pass groups=1 to hvd.DistributedGradientTape or DistributedOptimizer, so that Horovod hands over all at once"
        if self._exact:
            raise ConfigError(f"a controller with agreement='exact' needs every gradient before it decides; {how}")
        for plan in self._plans:
            members = [slot.parameter.name for slot in plan.unit.slots]
            if plan.untouched or not set(members) & set(names):
                continue
            if not set(members) & set(expected) <= set(names):
                raise ConfigError(f"unit {plan.unit.name!r} needs the gradients of {len(members)} variables at once; {how}")
            if not plan.in_one_round:
                raise ConfigError(
                    f"{plan.compressor!r} with {plan.exchange!r} takes several rounds, for which Horovod's calls must come in "
                    f"one order; {how}"
                )


def _listed(names: Sequence[str]) -> str:
    more = f" ({len(names)} in all)" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more
