"""What Horovod calls on its ``compression=``, which now and then is a class by mistake."""

from collections.abc import Callable
from typing import Any, NoReturn

from hvd_adaptive.errors import ConfigError


class on_instances:  # noqa: N801 - a decorator
    """A method that, called on a class, says what to write instead.

    Args:
        method: of a compression object.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: object | None, owner: type) -> Callable[..., Any]:
        if instance is not None:
            bound: Callable[..., Any] = self._method.__get__(instance, owner)
            return bound

        def refuse(*_: Any) -> NoReturn:
            raise ConfigError(
                f"compression is the class {owner.__name__}; build one before training and pass that, such as "
                f"compression={owner.__name__}(parameters, TopK(factor=100))"
            )

        return refuse
