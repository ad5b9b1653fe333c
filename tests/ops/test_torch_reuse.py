"""Vectors serve again when nobody holds them, and only then."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hvd_adaptive.ops import torch_reuse
from hvd_adaptive.ops.torch_reuse import Reused

N = 1000


def test_what_nobody_holds_serves_again_as_zeros() -> None:
    reused = Reused()
    first = reused.zeros(N, torch.float32)
    place = first.data_ptr()
    first += 1
    del first
    again = reused.zeros(N, torch.float32)
    assert again.data_ptr() == place
    assert again.eq(0).all()
    assert (again.dtype, again.shape) == (torch.float32, (N,))


def gradient(x: torch.Tensor) -> Any:
    """A parameter to whose gradient Horovod gave a part."""
    parameter = torch.nn.Parameter(torch.zeros(5))
    parameter.grad = torch.zeros(5)
    parameter.grad.set_(x[3:8])
    return parameter


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the vector": lambda x: x,
    "a part": lambda x: x[5:6],
    "a gradient": gradient,
    "its memory": lambda x: x.numpy(),
    "a detached part": lambda x: x[:9].detach(),
}


@pytest.mark.parametrize("holds", HOLDERS.values(), ids=HOLDERS)
def test_what_somebody_holds_does_not(holds: Callable[[torch.Tensor], Any]) -> None:
    reused = Reused()
    first = reused.zeros(N, torch.float32)
    first += 1
    place, held = first.data_ptr(), holds(first)
    del first
    other = reused.zeros(N, torch.float32)
    assert other.data_ptr() != place
    assert other.eq(0).all()
    del held
    assert reused.zeros(N, torch.float32).data_ptr() != other.data_ptr()


def test_as_many_serve_again_as_were_held_together() -> None:
    """As the gradients of layers of one shape are."""
    reused = Reused()
    held = [reused.zeros(N, torch.float32) for _ in range(3)]
    places = {vector.data_ptr() for vector in held}
    assert len(places) == 3
    kept = held.pop()
    held.clear()
    assert {vector.data_ptr() for vector in [reused.zeros(N, torch.float32) for _ in range(2)]} == places - {kept.data_ptr()}


def test_each_size_and_dtype_has_its_own() -> None:
    reused = Reused()
    places = set()
    for n, dtype in [(N, torch.float32), (N, torch.float64), (N + 1, torch.float32)]:
        given = reused.zeros(n, dtype)
        assert (given.numel(), given.dtype) == (n, dtype)
        places.add(given.data_ptr())
        del given
    assert len(places) == 3


def test_another_thread_never_gets_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks between the moment when nobody holds the vector and the moment when somebody does."""
    reused, real, other = Reused(), torch_reuse._users, []
    reused.zeros(N, torch.float32)

    def interrupted(storage: int) -> int:
        users = real(storage)
        if not other:
            other.append(None)
            other.append(reused.zeros(N, torch.float32))
        return users

    monkeypatch.setattr(torch_reuse, "_users", interrupted)
    assert reused.zeros(N, torch.float32).data_ptr() != other[1].data_ptr()


def test_without_word_from_torch_nothing_serves_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_reuse, "_users", None)
    reused = Reused()
    first = reused.zeros(N, torch.float32)
    first += 1
    assert reused.zeros(N, torch.float32).eq(0).all()
    assert first.eq(1).all()
