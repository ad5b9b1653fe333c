#!/usr/bin/env bash
# Installs what is missing, then trains a CNN on Fashion-MNIST with 2 ranks and gradients compressed under GraVAC.
# Arguments are passed on to examples/torch_gravac.py.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
. scripts/environment.sh

# The launcher tags each line with its rank, which breaks tables, and imports TensorFlow, which logs before it can be told not to.
horovodrun -np "${RANKS:-2}" python examples/torch_gravac.py --json runs/demo.json "$@" 2>&1 |
  sed -u -E -e 's/^\[[0-9,]+\]<std(out|err)>: ?//' -e '/^(I0000 |WARNING: All log messages before absl)/d'
