"""``exchange="auto"`` where the network matters, measured by TensorFlow's ranks; the torch binding's tests have the rest."""

from typing import Any

import numpy as np
from taped import model, stepping, train

import hvd_adaptive.tensorflow as hva
from hvd_adaptive import TopK
from hvd_adaptive.exchange import auto


def test_a_network_is_measured_and_agreed(ranks: Any) -> None:
    def on_rank() -> tuple[list[str], np.ndarray]:
        before = dict(auto.WORTH)
        auto.WORTH.update({"shared-support": 1.2})  # three ranks are too few to be worth another exchange
        variables = model()
        try:
            compression = hva.LayerWise(variables, TopK(10), dense_below=0)
        finally:
            auto.WORTH.update(before)
        train(stepping(variables, compression), 3)
        exchanges = [plan.exchange.name for plan in compression._steps.plans]
        return exchanges, np.concatenate([variable.numpy().ravel() for variable in variables])

    (exchanges, weights), *others = ranks(3).run(on_rank)
    assert set(exchanges) <= {"gather", "shared-support"}
    for theirs, their_weights in others:
        assert theirs == exchanges
        np.testing.assert_array_equal(their_weights, weights)
