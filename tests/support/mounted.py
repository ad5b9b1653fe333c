"""A command that sees other mounts than everybody else does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def _may_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not _may_mount(), reason="mounting needs root, and a kernel that lets it")


def run_mounted(mount: str, command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """After ``mount``, statements of a shell, ``command`` in ``folder``; both streams of it apart."""
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", f'{mount}; exec "$@"', "sh", *command],
        env=os.environ | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
