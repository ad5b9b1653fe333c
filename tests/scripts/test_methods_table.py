"""The table of methods is what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_document_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "methods_table.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs" / "methods.md").read_text(), "run: python scripts/methods_table.py > docs/methods.md"
