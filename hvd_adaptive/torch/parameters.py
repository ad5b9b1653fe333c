"""The parameters a user hands over: checked, and found again from the gradients Horovod hands over."""

from collections.abc import Iterable
from typing import Any

import torch

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.granularity import Parameter

NamedParameters = Iterable[tuple[str, torch.Tensor]]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_HOW = "pass model.named_parameters(), the same as to DistributedOptimizer"


def checked(named_parameters: NamedParameters) -> dict[str, torch.Tensor]:
    """The distinct parameters by name, in order; one that goes by several names keeps the first.

    Raises:
        ConfigError: if there are none, or names are missing, empty or repeated.
        UnsupportedError: if one is complex, sparse or no float.
    """
    if isinstance(named_parameters, torch.nn.Module):
        raise ConfigError(f"named_parameters is a module; {_HOW}")
    if not isinstance(named_parameters, Iterable):
        raise ConfigError(f"named_parameters is {named_parameters!r}; {_HOW}")
    items: list[Any] = list(named_parameters)
    parameters: dict[str, torch.Tensor] = {}
    for item in items:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], torch.Tensor)):
            raise ConfigError(f"named_parameters must yield (name, parameter) pairs, got {type(item).__name__}; {_HOW}")
        name, parameter = item
        if not isinstance(name, str) or not name:
            raise ConfigError(f"every parameter needs a name that is not empty, got {name!r}; {_HOW}")
        if name in parameters:
            raise ConfigError(f"the name {name!r} is given to two parameters; names must be unique")
        if not any(parameter is known for known in parameters.values()):
            parameters[name] = parameter
    if not parameters:
        raise ConfigError(f"named_parameters is empty (a generator can be read only once); {_HOW}")
    for name, parameter in parameters.items():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise UnsupportedError(f"parameter {name!r} of a lazy module has no shape yet; run one forward pass first")
        if parameter.requires_grad and (parameter.dtype not in _FLOATS or parameter.layout is not torch.strided):
            raise UnsupportedError(
                f"parameter {name!r} is {parameter.dtype}, {parameter.layout}; "
                f"Horovod and this package reduce dense real floats only: {', '.join(map(str, _FLOATS))}. Leave it out"
            )
    return parameters


def described(name: str, parameter: torch.Tensor) -> Parameter:
    """What the core needs to know of a parameter."""
    return Parameter(name, tuple(parameter.shape), str(parameter.dtype).removeprefix("torch."))


def shaped_like(mean: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The flat ``mean`` with the shape, dtype and memory format of ``gradient``."""
    shaped = mean.view(gradient.shape)
    if shaped.dtype == gradient.dtype and gradient.is_contiguous():
        return shaped
    return torch.empty_like(gradient).copy_(shaped)


class Finder:
    """Finds which parameter a gradient belongs to.

    ``p.grad is gradient`` is the only sure sign: storage and ids are reused from step to step. The order of the last step is
    only a hint where to look first.

    Args:
        parameters: by name.
        excluded: names of those whose gradient may be sparse, because it is not compressed.
    """

    def __init__(self, parameters: dict[str, torch.Tensor], excluded: set[str]) -> None:
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._excluded = excluded
        self._successor: dict[int, int] = {}
        self._last = 0

    def find(self, gradient: torch.Tensor) -> str | None:
        """The name of the parameter whose ``.grad`` this is; None if it is a dense copy of an excluded one's sparse gradient.

        Raises:
            ConfigError: if it belongs to none of them.
            UnsupportedError: if it is a parameter itself, as with ``op=hvd.Adasum``, or a copy of a sparse gradient.
        """
        # Without a hint: backward goes from the last parameter to the first.
        guess = self._successor.get(self._last, (self._last or len(self._parameters)) - 1)
        if self._parameters[guess].grad is not gradient:
            found = next((number for number, p in enumerate(self._parameters) if p.grad is gradient), None)
            if found is None:
                self._explain(gradient)
                return None
            self._successor[self._last] = guess = found
        self._last = guess
        return self._names[guess]

    def dense_names(self) -> list[str]:
        """Names of the parameters whose gradient is not sparse at this moment."""
        return [name for name, p in zip(self._names, self._parameters, strict=True) if not _has_sparse_gradient(p)]

    def check_sparse(self) -> None:
        """
        Raises:
            UnsupportedError: if a gradient that should be compressed is sparse.
        """
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if _has_sparse_gradient(parameter) and name not in self._excluded:
                raise UnsupportedError(
                    f"the gradient of {name!r} is sparse: Horovod sends sparse gradients past any compression, or as unnamed "
                    "dense copies with sparse_as_dense=True; build the layer with sparse=False, or exclude the parameter"
                )

    def _explain(self, gradient: torch.Tensor) -> None:
        """Raise what is wrong with a gradient that was not found; return if it is legal all the same."""
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if parameter is gradient or parameter.data_ptr() == gradient.data_ptr() != 0:
                raise UnsupportedError(
                    f"Horovod handed over the parameter {name!r} instead of its gradient, as it does with op=hvd.Adasum: Adasum "
                    "combines whole updates, and compression would change what it measures; use op=hvd.Average or op=hvd.Sum"
                )
        self.check_sparse()
        if any(_has_sparse_gradient(p) and p.shape == gradient.shape for p in self._parameters):
            return
        raise ConfigError(
            f"a gradient of shape {tuple(gradient.shape)} belongs to no parameter this compression object was built for; give it "
            "the same named_parameters as DistributedOptimizer, and each optimizer an object of its own"
        )


def _has_sparse_gradient(parameter: torch.Tensor) -> bool:
    return parameter.grad is not None and parameter.grad.is_sparse
