"""After an elastic reset: those that stayed rejoin, those that are new build their object, and all are as if just built."""

from typing import Any

import horovod.torch as hvd
import torch
from training import building, flat, model, optimizer_for, refused_alike, train

from hvd_adaptive import AgreementError, GraVAC, TopK

STEPS = 4
STEERED = GraVAC(2, 100, probe_dense=False)


def rejoined(scope: str, newcomer: int | None, factor: float = 10) -> Any:
    """Parameters after steps that follow a change of ranks; the ``newcomer`` was not there before."""
    old, new = model(), model()
    compression = building(scope, TopK(10), controller=STEERED)(old)
    optimizer = optimizer_for(old, compression)
    train(old, optimizer, STEPS)
    if hvd.rank() == newcomer:
        compression = building(scope, TopK(factor), controller=STEERED)(new)
        optimizer = optimizer_for(new, compression)
    else:
        compression.rejoin()
        assert compression.stats().steps == 0
        old.load_state_dict(new.state_dict())
        optimizer.load_state_dict(optimizer_for(new, None).state_dict())
    module = new if hvd.rank() == newcomer else old
    train(module, optimizer, STEPS)
    return flat(module), compression.stats().steps, compression.state_dict()["steps"]


def test_it_is_as_if_just_built(ordered_ranks: Any) -> None:
    def fresh(scope: str) -> torch.Tensor:
        module = model()
        train(module, optimizer_for(module, building(scope, TopK(10), controller=STEERED)(module)), STEPS)
        return flat(module)

    for scope in ("layer-wise", "entire-model", "bucketed"):
        expected, *_ = ordered_ranks(3).run(fresh, scope)
        for newcomer in (None, 1):
            for parameters, *steps in ordered_ranks(3).run(rejoined, scope, newcomer):
                assert torch.equal(parameters, expected)
                assert steps == [STEPS, STEPS]


def test_a_newcomer_with_other_arguments_is_refused_by_all(ranks: Any) -> None:
    text = refused_alike(ranks(2), AgreementError, rejoined, "entire-model", 1, 20)
    assert "rank 0 has" in text
    assert "rank 1" in text
