"""The variables a user hands over: checked and named alike on all ranks."""

import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.granularity import Parameter

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_HOW = "pass model.trainable_variables, as to the tape"


def checked(variables: Iterable[Any]) -> dict[str, tf.Variable]:
    """The distinct variables in order, by name: their place and their path without the numbers that Keras counts up.

    Those numbers differ between processes, or after a model was built twice: ``"3.dense/kernel"`` is ``dense_7/kernel:0``.

    Raises:
        ConfigError: if there are none, or they are no variables.
        UnsupportedError: if one that is trained is no real float.
    """
    if (
        hasattr(variables, "trainable_variables")
        or not isinstance(variables, Iterable)
        or isinstance(variables, str | tf.Variable)
    ):
        raise ConfigError(f"variables is {type(variables).__name__}; {_HOW}")
    given: dict[str, tf.Variable] = {}
    for one in list(variables):
        variable, path = _opened(one)
        if any(variable is known for known in given.values()):
            continue
        name = f"{len(given)}.{_path(path)}"
        if variable.trainable and variable.dtype.name not in _FLOATS:
            raise UnsupportedError(
                f"variable {path!r} is {variable.dtype.name}; Horovod and this package reduce real floats only: "
                f"{', '.join(_FLOATS)}. Leave it out"
            )
        given[name] = variable
    if not given:
        raise ConfigError(
            f"there are no variables: a model that is not built has none, so call it once or build it first; {_HOW}"
        )
    return given


def described(name: str, variable: tf.Variable) -> Parameter:
    """What the core needs to know of a variable."""
    if not variable.shape.is_fully_defined():
        raise UnsupportedError(f"variable {name!r} has the shape {variable.shape}; all its sizes must be known")
    return Parameter(name, tuple(variable.shape.as_list()), variable.dtype.name)


def _opened(one: Any) -> tuple[tf.Variable, str]:
    """The variable that TensorFlow knows, and its path: one of Keras 3 holds it inside."""
    if isinstance(one, tf.Variable):
        return one, one.name
    inner = getattr(one, "value", None)
    if isinstance(inner, tf.Variable) and hasattr(one, "path"):
        return inner, str(one.path)
    raise ConfigError(f"variables must hold variables, got {type(one).__name__}; {_HOW}")


def _path(name: str) -> str:
    return "/".join(re.sub(r"(?<=.)_\d+$", "", part) for part in name.removesuffix(":0").split("/"))
