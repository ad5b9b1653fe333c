"""What is tested is what users install."""

import importlib.metadata
import os
import sysconfig
from pathlib import Path

import pytest

import hvd_adaptive

PACKAGE = Path(hvd_adaptive.__file__).parent


@pytest.mark.skipif(os.environ.get("HVD_ADAPTIVE_TESTED") != "wheel", reason="only scripts/test.sh installs the wheel first")
def test_the_installed_wheel_is_imported() -> None:
    assert PACKAGE.parent == Path(sysconfig.get_path("purelib"))


@pytest.mark.skipif(os.environ.get("HVD_ADAPTIVE_TESTED") != "wheel", reason="only scripts/test.sh installs the wheel first")
def test_the_wheel_holds_every_module() -> None:
    source = Path(__file__).parents[1] / "hvd_adaptive"
    wanted = {file.relative_to(source) for file in source.rglob("*") if file.suffix == ".py" or file.name == "py.typed"}
    assert {file.relative_to(PACKAGE) for file in PACKAGE.rglob("*") if file.suffix == ".py" or file.name == "py.typed"} == wanted


def test_versions_agree() -> None:
    assert hvd_adaptive.__version__ == importlib.metadata.version("hvd_adaptive")
