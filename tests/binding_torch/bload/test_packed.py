"""Parts of samples of every shape."""

from collections import UserDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from hvd_adaptive import ConfigError
from hvd_adaptive.bload.packed import cut, measured


class Pair(NamedTuple):
    x: Any
    y: Any


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return type(value)(plain(v) for v in value) if type(value) in {tuple, list} else value


FIVE = torch.arange(5)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (FIVE, [1, 2, 3]),
        (FIVE.numpy(), [1, 2, 3]),
        ([0, 1, 2, 3, 4], [1, 2, 3]),
        ("01234", "123"),
        ((FIVE, FIVE + 1, 7), ([1, 2, 3], [2, 3, 4], 7)),
        ({"x": FIVE, "tokens": [5, 6, 7, 8, 9], "name": "abcde", "no": torch.tensor(3)}, None),
        ([FIVE, FIVE + 1], [[1, 2, 3], [2, 3, 4]]),
        ((FIVE, {"y": FIVE}), ([1, 2, 3], {"y": [1, 2, 3]})),
        (UserDict(x=FIVE), {"x": [1, 2, 3]}),
    ],
)
def test_a_part(sample: Any, expected: Any) -> None:
    if expected is None:
        expected = {"x": [1, 2, 3], "tokens": [6, 7, 8], "name": "abcde", "no": 3}
    assert plain(cut(sample, 1, 3)) == expected


def test_named_tuples_stay_what_they_are() -> None:
    found = cut(Pair(FIVE, 1), 0, 2)
    assert isinstance(found, Pair)
    assert found.x.tolist() == [0, 1]
    assert found.y == 1


def test_no_elements_look_like_the_sample() -> None:
    x, label = cut((torch.zeros(5, 3, dtype=torch.int16), 4), 0, 0)
    assert (tuple(x.shape), x.dtype, label) == ((0, 3), torch.int16, 4)


@pytest.mark.parametrize("sample", [(FIVE, FIVE), {"x": FIVE}, UserDict(x=FIVE), [FIVE, FIVE], Pair(FIVE, 1)])
def test_members_are_not_counted_for_elements(sample: Any) -> None:
    with pytest.raises(ConfigError, match=r"which len\(\) would take for its length; give length_fn="):
        measured(len, sample)
    assert measured(lambda _: 5, sample) == 5


@pytest.mark.parametrize("sample", [FIVE, [0, 1, 2, 3, 4], "01234", range(5), FIVE.numpy()])
def test_elements_are_counted(sample: Any) -> None:
    assert measured(len, sample) == 5
