"""The core needs no framework: a user of one must not load, or even have, the others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hvd_adaptive

FRAMEWORKS = {"torch", "tensorflow", "horovod", "mpi4py", "keras", "tf_keras"}
PACKAGE = Path(hvd_adaptive.__file__).parent
BINDINGS = (
    "hvd_adaptive.binding",
    "hvd_adaptive.torch",
    "hvd_adaptive.tensorflow",
    "hvd_adaptive.keras",
    "hvd_adaptive.ops.torch_ops",
    "hvd_adaptive.ops.torch_device",
    "hvd_adaptive.ops.torch_reuse",
    "hvd_adaptive.ops.tensorflow_ops",
)


def core_modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not any(name == binding or name.startswith(binding + ".") for binding in BINDINGS):
            yield name


def frameworks_loaded_by(*modules):
    """Names of the frameworks in a fresh process after importing ``modules``."""
    script = (
        "import importlib, json, sys; [importlib.import_module(m) for m in sys.argv[1:]]; print(json.dumps(list(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "error", "-c", script, *modules]
    loaded = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert set(modules) <= set(loaded)
    return {name.split(".")[0] for name in loaded} & FRAMEWORKS


def test_the_package_alone_loads_no_framework():
    assert frameworks_loaded_by("hvd_adaptive") == set()


def test_the_whole_core_loads_no_framework():
    modules = list(core_modules())
    assert {"hvd_adaptive", "hvd_adaptive.engine", "hvd_adaptive.ops.numpy_ops", "hvd_adaptive.compress.topk"} <= set(modules)
    assert frameworks_loaded_by(*modules) == set()


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("hvd_adaptive.binding.compression", {"torch", "tensorflow"}),
        ("hvd_adaptive.torch", {"tensorflow"}),
        ("hvd_adaptive.tensorflow", {"torch"}),
    ],
)
def test_no_binding_loads_the_others_framework(module, others):
    assert not frameworks_loaded_by(module) & others


def test_this_check_can_fail():
    assert frameworks_loaded_by("hvd_adaptive.ops.torch_ops") == {"torch"}


@pytest.mark.parametrize("name", hvd_adaptive.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(hvd_adaptive, name).__doc__


def test_the_version_is_that_of_the_installed_package():
    assert hvd_adaptive.__version__[0].isdigit()
