#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that Reprise is built and tested with, and nothing that is there
# already.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/install_dependencies.sh [--build-only] [--help]

Installs, with apt, the packages that are missing on this machine (Debian 12). It runs as root or
through sudo; where nothing is missing it needs neither and does not touch the network.

  --build-only  leave out what only the tests and the style checks need
  --help        show this text

The tests compile the kernels for AMD GPUs too: clang 19, its linker and the device libraries are
among their packages. The CUDA toolkit is not installed: it is used where nvcc is found.
TEXT
}

build_packages=(
  ccache
  cmake
  g++
  libabsl-dev
  libc-ares-dev
  libcli11-dev
  libevent-dev
  libgrpc++-dev
  libhwy-dev
  libprotobuf-dev
  libre2-dev
  libssl-dev
  ninja-build
  nlohmann-json3-dev
  protobuf-compiler
  protobuf-compiler-grpc
  zlib1g-dev
)
test_packages=(
  clang-19
  clang-format
  clang-tidy
  clang-tools-19
  libbenchmark-dev
  libgmock-dev
  libgtest-dev
  lld-19
  llvm-19
  openssl
  pkgconf
  python3
  python3-grpcio
  python3-prometheus-client
  rocm-device-libs
  shellcheck
)

fail() {
  printf 'install_dependencies.sh: %s\n' "$*" >&2
  exit 1
}

packages=("${build_packages[@]}" "${test_packages[@]}")
while (($# > 0)); do
  case "$1" in
    --build-only) packages=("${build_packages[@]}") ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      usage >&2
      fail "unknown argument \"$1\""
      ;;
  esac
  shift
done

for tool in apt-get dpkg-query; do
  command -v "${tool}" >/dev/null || fail "needs apt and dpkg (Debian 12); there is no ${tool} here"
done

is_installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

missing=()
for package in "${packages[@]}"; do
  is_installed "${package}" || missing+=("${package}")
done
if ((${#missing[@]} == 0)); then
  printf 'All %d packages are installed.\n' "${#packages[@]}"
  exit 0
fi
printf 'Installing %d of %d packages: %s\n' "${#missing[@]}" "${#packages[@]}" "${missing[*]}"

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "not root and no sudo: install these yourself: ${missing[*]}"
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
