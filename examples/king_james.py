"""The King James Bible in words, from the program ``bible``."""

import re
import subprocess


def verses() -> list[list[str]]:
    """Each verse's words and punctuation marks in lower case, and ``<end>``."""
    try:
        text = subprocess.run(
            ["bible", "-f", "Gen1:1-Rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        ).stdout
    except FileNotFoundError:
        raise SystemExit("error: no King James Bible; install it with: apt-get install bible-kjv") from None
    return [[*re.findall(r"\w+|[^\w\s]", line.partition(" ")[2].lower()), "<end>"] for line in text.splitlines()]
