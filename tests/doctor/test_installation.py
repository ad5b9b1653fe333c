"""What is said of Horovod and the frameworks."""

from importlib import metadata

import pytest
import torch

from hvd_adaptive.doctor import installation


@pytest.mark.parametrize(
    ("version", "libraries", "frameworks", "status", "said"),
    [
        (None, [], ["torch"], "failure", "install it"),
        ("0.28.1", [], ["torch"], "failure", "installed: torch"),
        ("0.28.1", ["tensorflow"], ["torch"], "failure", "installed: torch"),
        ("0.28.1", ["torch"], [], "failure", "installed: none"),
        ("0.28.1", ["torch"], ["torch", "tensorflow"], "warning", "tensorflow cannot be used"),
        ("0.27.0", ["torch"], ["torch"], "warning", "0.28.1"),
        ("0.28.1", ["torch"], ["torch"], "ok", ""),
    ],
)
def test_horovod_must_be_built_for_what_is_installed(
    version: str | None, libraries: list[str], frameworks: list[str], status: str, said: str
) -> None:
    found = installation.horovod(version, libraries, frameworks)
    assert found.status == status
    assert said in found.advice
    assert bool(found.advice) == (status != "ok")


def test_this_installation_is_as_the_setup_leaves_it() -> None:
    found = {finding.name: finding for finding in installation.examine()}
    assert installation.built_for() == ["torch", "tensorflow"]
    assert {finding.status for finding in found.values()} == {"ok"}
    assert found["torch"].found.partition("+")[0] == torch.__version__.partition("+")[0]
    assert found["mpi4py"].found == metadata.version("mpi4py")
