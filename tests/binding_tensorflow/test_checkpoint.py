"""States as bytes."""

import math

import numpy as np

from hvd_adaptive.tensorflow.checkpoint import packed, unpacked


def test_a_state_comes_back_as_it_was() -> None:
    """Tuples are no lists, keys may be numbers, floats may be none: a controller may tell them apart."""
    vectors = {"residual": np.array([0.1, -0.0, np.nan], "float32"), "q": np.zeros(0, "float64")}
    state = {"says": ("a", ("b", [])), "kept": {4.0: [None, True, 2**70], 5: {}}, "least": -math.inf, "memory": {"unit": vectors}}
    assert repr(unpacked(packed({"states": [state, state], "steps": 3}))) == repr({"states": [state, state], "steps": 3})
