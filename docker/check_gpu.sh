#!/usr/bin/env bash
# Builds the GPU image as far as that goes without a GPU or NVIDIA's images, and takes compressed steps on its CPU.
#
#   docker/check_gpu.sh
#
# The base is check.sh's, with CUDA's compiler, its headers and NCCL out of the wheels that pip gets. As those have NCCL as a shared
# library only, Horovod is linked to that here; in NVIDIA's images it is linked to the static one. Needs root and buildah.
# shellcheck disable=SC2016 # what is quoted, the image's shell expands
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/engine.sh

# shellcheck disable=SC2034 # engine.sh uses them
image=localhost/hvd_adaptive-gpu
name=hvd_adaptive-check-$$
work=$(mktemp -d)
trap 'remove_containers; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
wheels=$work/none
mkdir "$wheels"
export BUILDAH_ISOLATION=chroot

step() { printf '\n== %s (after %s s)\n' "$*" "$SECONDS"; }

make_cuda_base() {
  local cuda=$work/root/usr/local/cuda wheel
  mkdir -p "$work/cuda" "$work/unpacked" "$work/root/usr/local"
  python3 -m pip download --quiet --no-deps --dest "$work/cuda" nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 \
    nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-nccl-cu13==2.30.7
  for wheel in "$work"/cuda/*.whl; do python3 -m zipfile -e "$wheel" "$work/unpacked"; done
  mv "$work/unpacked/nvidia/cu13" "$cuda"
  cp -r "$work"/unpacked/nvidia/nccl/{include,lib} "$cuda"
  chmod +x "$cuda"/bin/* "$cuda"/nvvm/bin/*
  ln -s lib "$cuda/lib64"
  ln -s libnccl.so.2 "$cuda/lib/libnccl.so"
  buildah from --name "$name-base" "$BASE" >/dev/null
  buildah add --quiet "$name-base" "$work/root" / >/dev/null
  buildah config --env HOROVOD_NCCL_LINK=SHARED --env LD_LIBRARY_PATH=/usr/local/cuda/lib64 \
    --env PATH=/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$name-base"
  BASE=localhost/hvd_adaptive-cuda-base
  buildah commit --quiet "$name-base" "$BASE" >/dev/null
  buildah rm "$name-base" >/dev/null
}

step "the machine's part"
prepare_engine
lend_pip_configuration
sed -i '/^find-links/,/^[a-z]/{/^find-links/d;/^ /d}' "$work/pip.conf" # a folder of wheels may hold torch's CPU build
make_cuda_base

step "build"
build_image docker/Dockerfile.gpu "$image"
start_containers

step "compressed steps on two ranks, by Horovod with NCCL, on the CPU"
run_as horovod 'hvd-adaptive doctor --ranks 2 | tee /tmp/doctor.txt && grep -q "NCCL built" /tmp/doctor.txt &&
  python -c "import torch; assert torch.version.cuda, torch.__version__"'

step "size"
echo "The image takes $(image_size "$image")"
