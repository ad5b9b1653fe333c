#!/usr/bin/env bash
# Builds Horovod's wheel from its published sdist against the frameworks of the given Python, once, and prints the wheel's path.
#
#   scripts/build_horovod.sh PYTHON
#
# The wheel is cached under ${HVD_ADAPTIVE_CACHE:-~/.cache/hvd-adaptive}, keyed by everything it was compiled against.
# Horovod's own variables (HOROVOD_GPU_OPERATIONS, HOROVOD_NCCL_HOME, ...) pass through and are part of the key. On GPUs it is torch's alone
# (HOROVOD_WITHOUT_TENSORFLOW=1): what Horovod asks of TensorFlow's GPU streams is no longer in TensorFlow's wheel.
set -euo pipefail

python=$1
PATH="$(dirname "$python"):$PATH" # the cmake installed beside it
version=0.28.1
cache=${HVD_ADAPTIVE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hvd-adaptive}

export HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
[ "${HOROVOD_WITHOUT_TENSORFLOW:-}" = 1 ] || export HOROVOD_WITH_TENSORFLOW=1

versions=$("$python" - <<'PY'
import importlib.metadata as metadata, platform, sys
from pathlib import Path

local = {}  # torch's own file says +cpu or +cuNNN, the metadata does not always
exec((Path(metadata.distribution("torch").locate_file("torch")) / "version.py").read_text(), local)
tensorflow = [d + metadata.version(d) for d in ("tensorflow", "tensorflow-cpu") if list(metadata.distributions(name=d))]
print("-".join([f"cp{sys.version_info.major}{sys.version_info.minor}", platform.machine(), "torch" + local["__version__"], *tensorflow[:1]]))
PY
)
mpi=$( (ompi_info --version 2>/dev/null || mpirun --version 2>/dev/null || echo none) | head -n 1 | tr -cs 'A-Za-z0-9.' '-')
options=$(env | grep '^HOROVOD_' | sort | cksum | cut -d' ' -f1)
recipe=$(cksum <"$0" | cut -d' ' -f1)
folder="$cache/horovod-$version-$versions-$mpi$options-$recipe"

find_wheel() { find "$folder" -name 'horovod-*.whl' 2>/dev/null | head -n 1; }

if [ -z "$(find_wheel)" ]; then
  echo "Building Horovod $version once (about 6 minutes on 2 cores); the wheel is kept in $folder" >&2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$python" -m pip download --quiet --no-deps --no-binary horovod --no-build-isolation --dest "$work" "horovod==$version" >&2
  tar -xzf "$work"/horovod-*.tar.gz -C "$work"
  source=$work/horovod-$version

  # Today's framework headers are C++20, and TensorFlow's wheel lacks the headers of one XLA file.
  sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 20)/' "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
  sed -i 's/set(CMAKE_CXX_STANDARD 17)/set(CMAKE_CXX_STANDARD 20)/' "$source/horovod/tensorflow/CMakeLists.txt"
  sed -i '/xla_mpi_ops\.cc/d' "$source/horovod/tensorflow/CMakeLists.txt"

  # One compiler process takes up to 2 GiB.
  jobs=$(awk -v cores="$(nproc)" '/MemAvailable/ {m = int($2 / 2097152); if (m < 1) m = 1; print (m < cores ? m : cores)}' /proc/meminfo)
  mkdir -p "$cache"
  if ! MAKEFLAGS="-j$jobs" "$python" -m pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$source" >"$work/build.log" 2>&1; then
    cp "$work/build.log" "$cache/horovod-build.log"
    tail -n 40 "$cache/horovod-build.log" >&2
    echo "error: Horovod did not build; the whole log is $cache/horovod-build.log" >&2
    exit 1
  fi
  rm -rf "$folder" && mkdir -p "$folder.$$" && mv "$work"/wheel/*.whl "$folder.$$/" && mv -T "$folder.$$" "$folder"
fi
find_wheel
