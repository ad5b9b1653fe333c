"""``horovod.run()``, the launcher within Python, on two hosts."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(300)]  # each test launches ranks on hosts, which takes seconds


@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_a_function_trains_on_every_host(
    two_hosts: Any, programs: Path, rank_environment: dict[str, str], tmp_path: Path, controller: str
) -> None:
    output = tmp_path / "found.json"
    program = [sys.executable, str(programs / "run_function.py"), "a:1,b:1", controller, str(output)]
    done = two_hosts.run(*program, folder=tmp_path, environment=rank_environment)
    assert done.returncode == 0, done.stdout
    found = json.loads(output.read_text())
    assert [one["host"] for one in found] == ["a", "b"]
    assert [one["mpi"] for one in found] == [controller == "mpi"] * 2
    assert [one["steps"] for one in found] == [5, 5]
    assert len({one["digest"] for one in found}) == 1
