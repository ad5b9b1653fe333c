"""Whether a reduction that Horovod traces fits the compression object, told before the first step runs."""

from collections.abc import Mapping, Sequence

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.plan import UnitPlan
from hvd_adaptive.tensorflow.caller import Call


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
        self._expected: list[str] | None = None
        self.silent: tuple[int, ...] = ()
        """Numbers of the units of which no gradient comes, as the loss does not depend on their variables."""

    def names(self, call: Call) -> tuple[list[str], list[str]]:
        """Names of the variables whose gradients are handed over together, and of all that come in the step.

        Raises:
            ConfigError: if they are others than the object's, or not all that must come together do.
            UnsupportedError: if a gradient is sparse, or Adasum combines them.
        """
        if call.op == hvd.Adasum:
            raise UnsupportedError(
                "op=hvd.Adasum combines whole updates, and compression would change what it measures; use op=hvd.Average or "
                "op=hvd.Sum"
            )
        self._check_variables(call)
        expected = self._with_gradient(call)
        whose = {id(gradient): name for gradient, name in zip(call.gradients, self._all(call), strict=True)}
        names = [whose[id(tensor)] for tensor in call.tensors]
        if not call.whole:
            self._check_parts(names, expected)
        return names, expected

    def _all(self, call: Call) -> list[str]:
        return [self._names[id(variable)] for variable in call.variables]

    def _check_variables(self, call: Call) -> None:
        strange = [variable.name for variable in call.variables if id(variable) not in self._names]
        if strange:
            raise ConfigError(
                f"gradients of {_listed(strange)} are handed over, of which this compression object knows nothing; build it from "
                "the variables that the tape or the optimizer gets, each tape or optimizer with an object of its own"
            )
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
            silent = set(self._names.values()) - set(expected) - self._excluded
            self.silent = tuple(
                number
                for number, plan in enumerate(self._plans)
                if not plan.untouched and all(slot.parameter.name in silent for slot in plan.unit.slots)
            )
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
