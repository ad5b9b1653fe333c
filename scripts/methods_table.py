"""Prints docs/methods.md, the table of all methods, from the code.

python scripts/methods_table.py > docs/methods.md
"""

import inspect
import re

import numpy as np

from hvd_adaptive import prng
from hvd_adaptive.compress import NAMES, USUAL, Compressor
from hvd_adaptive.exchange import wire
from hvd_adaptive.ops.numpy_ops import NumpyOps

ELEMENTS = 1_000_000
HEAD = f"""# Methods

Written by `scripts/methods_table.py`; a test compares it with the code.

A method turns the gradient x of a unit (n elements) into a payload C(x), and a payload into a vector D(C(x)). Every method works
with every scope (`LayerWise`, `Bucketed`, `EntireModel`) and each of its exchanges, of which `exchange="auto"` takes the first
unless, among many ranks, another one is far faster.

- **biased**: the mean of D(C(x)) is not x.
- **omega**: E||D(C(x))||^2 <= (1 + omega) ||x||^2, the assumption of [Dutta et al. 2020](https://arxiv.org/abs/1911.08250), under
  a rank's own scale; where levels are summed, the shared scale may be larger.
- **bits**: on the wire for each element of a unit of {ELEMENTS:,} normally distributed elements with deviation 0.004,
  sent as one buffer: what is handed to Horovod, headers and scales included.
- **feedback**: what is on unless `feedback=` asks for something else.
"""


def bits_per_element(method: Compressor) -> float:
    """Of the buffer that a gather hands to Horovod."""
    ops = NumpyOps()
    x = (0.004 * np.random.default_rng(0).standard_normal(ELEMENTS)).astype(np.float32)
    key = prng.root(0)
    payload = method.encode(ops, x, prng.Draw(key, prng.derive(key, 1)))
    return 8 * ops.nbytes(wire.pack(ops, payload)) / ELEMENTS


def shown(method: Compressor) -> str:
    """``repr`` as a user would write it: without what is as it is by default."""
    parameters = inspect.signature(type(method)).parameters
    told = {name: getattr(method, name) for name, parameter in parameters.items() if getattr(method, name) != parameter.default}
    return f"{type(method).__name__}({', '.join(f'{name}={value!r}' for name, value in told.items())})"


def header(method: type[Compressor]) -> dict[str, str]:
    """The fields of the module's docstring."""
    text = inspect.getmodule(method).__doc__ or ""
    found = re.findall(r"^(Contract|On wire|Source|Differs) +(.*(?:\n {10}.*)*)", text, re.MULTILINE)
    return {"Title": text.splitlines()[0], **{name: re.sub(r"\s+", " ", value) for name, value in found}}


def main() -> None:
    """Print the document."""
    print(HEAD)
    print("| method | biased | omega | exchanges | bits | feedback |\n|---|---|---|---|---|---|")
    for method in USUAL:
        feedback = re.sub(r"\(.*\)", "", repr(method.feedback))
        cells = [f"`{shown(method)}`", "yes" if method.biased else "no", method.omega.__doc__, ", ".join(method.exchanges)]
        print("|", " | ".join([*cells, f"{bits_per_element(method):.3f}", f"`{feedback}`"]), "|")
    for name, method in NAMES.items():
        fields = header(method)
        print(f"\n## `{method.__name__}`\n\n`{name}` on command lines. {fields.pop('Title')}\n")
        print("\n".join(f"- **{field}**: {text}" for field, text in fields.items()))


if __name__ == "__main__":
    main()
