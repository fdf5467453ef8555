# SPDX-License-Identifier: Apache-2.0
# Sourced by quickstart.sh and test.sh from the repository root: what this machine has, and where
# the compiler cache lies.
# shellcheck shell=bash

has_nvcc() { command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; }

has_nvidia_gpu() {
  command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '
}

# A cache that the user keeps is used; where there is none it lies in build/, so that nothing else
# is left behind.
if [[ -z "${CCACHE_DIR:-}" && ! -d "${HOME:-/nonexistent}/.cache/ccache" &&
      ! -d "${HOME:-/nonexistent}/.ccache" ]]; then
  export CCACHE_DIR="${PWD}/build/ccache"
fi
