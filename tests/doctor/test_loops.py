"""Whether loops are kept, in folders that can be written and such that cannot."""

import json
import os
import subprocess
import sys
from pathlib import Path

from mounted import needs_mounts, run_mounted

import hvd_adaptive

PROGRAM = (
    "import dataclasses, json; from hvd_adaptive.doctor import loops; print(json.dumps(dataclasses.asdict(loops.examine())))"
)
PACKAGE = Path(hvd_adaptive.__file__).parent


def examined(folder: Path) -> dict[str, str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(run.stdout)
    return found


def test_they_are_compiled_once(tmp_path: Path) -> None:
    first, second = examined(tmp_path), examined(tmp_path)
    assert (first["status"], second["status"]) == ("ok", "ok")
    assert first["found"].startswith(f"compiled, kept in {tmp_path}")
    assert second["found"].startswith(f"taken from {tmp_path}")


@needs_mounts
def test_where_no_folder_can_be_written_it_is_said_which_can(tmp_path: Path) -> None:
    mount = f"mount --bind {PACKAGE} {PACKAGE}; mount -o remount,ro,bind {PACKAGE}"
    nowhere = {"XDG_CACHE_HOME": "/proc/none", "HOME": "/proc/none", "NUMBA_CACHE_DIR": "", "PYTHONPATH": str(PACKAGE.parent)}
    run = run_mounted(mount, [sys.executable, "-c", PROGRAM], tmp_path, **nowhere)
    found = json.loads(run.stdout)
    assert found["status"] == "failure"
    assert "NUMBA_CACHE_DIR" in found["advice"]
