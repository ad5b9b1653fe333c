#!/usr/bin/env bash
# Builds the CPU image and runs it: the doctor, quick tests, eight ranks, two hosts. Ends with 0 only if all of it works.
#
#   docker/check.sh
#
#   BASE                the base image (default: made from Debian's packages with mmdebstrap, as no registry need be reached)
#   RANKS               of the example, an even number (default: 8)
#
# Without a Docker engine it builds and runs with buildah, as root. The image stays, so that a second time takes what did not
# change from the first. pip's configuration, apt's sources and wheels of Horovod (HVD_ADAPTIVE_CACHE) are this machine's, and
# do not get into the image.
# shellcheck disable=SC2016 # what is quoted, the image's shell expands
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/engine.sh
. docker/hosts.sh

# shellcheck disable=SC2034 # engine.sh and hosts.sh use them
image=localhost/hvd_adaptive
ranks=${RANKS:-8}
name=hvd_adaptive-check-$$
work=$(mktemp -d)
trap 'end_hosts; remove_containers; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

step() { printf '\n== %s (after %s s)\n' "$*" "$SECONDS"; }
untagged() { sed -u -E 's/^\[[0-9,]+\]<std(out|err)>: ?//'; } # the launcher's tags break tables

step "the machine's part"
prepare_engine
lend_pip_configuration
wheels=${HVD_ADAPTIVE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hvd-adaptive}
[ -d "$wheels" ] || wheels=$work/none
mkdir -p "$wheels"

step "build"
build_image docker/Dockerfile "$image"
start_containers

step "what must not be in the image"
run_as horovod 'found=$(find /keys /mnt -mindepth 1; ls -d /etc/ssh/ssh_host_* /etc/pip.conf ~/.ssh ~/.hvd-host 2>/dev/null) || true
  [ -z "$found" ] || { echo "error: $found"; exit 1; }; ! python -c "import pytest" 2>/dev/null'

step "the doctor, as the image's user, on two ranks over MPI, then over Gloo, and as root"
run_as horovod 'test "$(id -un)" = horovod && hvd-adaptive doctor --ranks 2 && hvd-adaptive doctor --ranks 2 --gloo'
run_as root hvd-adaptive doctor

step "quick tests"
run_as root 'cd /source && python -m pip install --quiet -r requirements/dev.txt && install -d -o horovod /tmp/source &&
  cp -r .dockerignore benchmarks docker docs examples hvd_adaptive pyproject.toml README.md requirements scripts setup.py tests \
    /tmp/source && cd /tmp/source &&
  HOME=/home/horovod HVD_ADAPTIVE_TESTED=wheel setpriv --reuid horovod --regid horovod --init-groups \
    pytest -q -p no:cacheprovider $(grep -v "^#" docker/quick-tests.txt)'

step "horovodrun -np $ranks on one host"
run_as horovod "horovodrun -np $ranks python examples/torch_fashion_mnist.py --epochs 1 --limit 16000 2>&1" | untagged | tee "$work/one.txt"

step "horovodrun -np $ranks -H a:$((ranks / 2)),b:$((ranks / 2)) on two"
on_two_hosts horovodrun -np "$ranks" -H "a:$((ranks / 2)),b:$((ranks / 2))" \
  python examples/torch_fashion_mnist.py --epochs 1 --limit 16000 2>&1 | untagged | tee "$work/two.txt"

step "the same ranks trained the same model"
for file in one two; do
  grep -q "Fashion-MNIST on $ranks ranks" "$work/$file.txt" || { echo "error: not $ranks ranks that know of one another" && exit 1; }
done
# What is fused, and so the order of additions, depends on timing: a tenth of a point either way.
grep -hoE 'test accuracy [0-9.]+' "$work/one.txt" "$work/two.txt" |
  awk '{ print; a[NR] = $3 } END { d = a[1] - a[2]; exit !(NR == 2 && d * d <= 0.01) }'

step "size"
echo "The image takes $(image_size "$image")"
