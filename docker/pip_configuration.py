"""Prints what pip is told on this machine, as one file, for a container that has the folder named as /mnt.

python3 docker/pip_configuration.py FOLDER > pip.conf

Files and indexes on this machine's disk, that pip is told of, are put into the folder.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

_MOUNTED = "/mnt"
_FILE = "file://"


def settings() -> dict[str, str]:
    """Of all configuration files and variables; the variables count more."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()  # noqa: S603 - as above
    parsed = (line.partition("=") for line in listed if "=" in line)
    values = {name: str(ast.literal_eval(value)) for name, _, value in parsed}
    found = {name.removeprefix("global."): value for name, value in values.items() if name.startswith("global.")}
    return found | {name.removeprefix(":env:."): value for name, value in values.items() if name.startswith(":env:.")}


def lent(word: str, folder: Path) -> str:
    """``word`` as it is in the container: what is a path here becomes one there."""
    path = Path(word.removeprefix(_FILE))
    if not path.is_absolute() or not path.exists():
        return word
    index = word.startswith(_FILE)
    source = path.parent if index else path  # the files of an index lie beside it
    copy = folder / f"{len(list(folder.iterdir()))}-{source.name}"
    if source.is_dir():
        shutil.copytree(source, copy, copy_function=_link_or_copy)
    else:
        shutil.copy(source, copy)
    inside = f"{_MOUNTED}/{copy.name}" + (f"/{path.name}" if index else "")
    return _FILE + inside if index else inside


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy(source, target)


def main() -> None:
    """Print the file."""
    folder = Path(sys.argv[1])
    print("[global]")
    for name, value in settings().items():
        print(f"{name} =", "\n    ".join(lent(word, folder) for word in value.split()))


if __name__ == "__main__":
    main()
