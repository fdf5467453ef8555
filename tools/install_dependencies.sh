#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that Reprise is built and tested with, and the npm packages that the
# Node clients are tested with; nothing that is there already.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/install_dependencies.sh [--build-only] [--help]

Installs, with apt, the packages that are missing on this machine (Debian 12). It runs as root or
through sudo; where nothing is missing it needs neither and does not touch the network.

  --build-only  leave out what only the tests and the style checks need
  --help        show this text

The clients in clients/node and clients/gateway are tested with Node and packages from npm:
clients/package-lock.json says which, and they go to clients/node_modules. Where npm cannot be
reached a message says so, and those tests are skipped.

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
  chromium-headless-shell
  clang-19
  clang-format
  clang-tidy
  clang-tools-19
  fish
  libbenchmark-dev
  libclang-rt-19-dev
  libgmock-dev
  libgtest-dev
  lld-19
  llvm-19
  openssl
  pkgconf
  python3
  python3-grpcio
  python3-numpy
  python3-prometheus-client
  rocm-device-libs
  shellcheck
  zsh
)

fail() {
  printf 'install_dependencies.sh: %s\n' "$*" >&2
  exit 1
}

# Node and npm from wherever they are, and from Debian where they are missing.
command -v node >/dev/null || test_packages+=(nodejs)
command -v npm >/dev/null || test_packages+=(npm)

build_only=false
packages=("${build_packages[@]}" "${test_packages[@]}")
while (($# > 0)); do
  case "$1" in
    --build-only)
      build_only=true
      packages=("${build_packages[@]}")
      ;;
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

install_debian_packages() {
  local missing=()
  for package in "${packages[@]}"; do
    is_installed "${package}" || missing+=("${package}")
  done
  if ((${#missing[@]} == 0)); then
    printf 'All %d packages are installed.\n' "${#packages[@]}"
    return
  fi
  printf 'Installing %d of %d packages: %s\n' "${#missing[@]}" "${#packages[@]}" "${missing[*]}"
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "not root and no sudo: install these yourself: ${missing[*]}"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# What clients/package-lock.json says, unless it is there. No package runs a script of its own.
install_npm_packages() {
  local lock
  cd "$(dirname "${BASH_SOURCE[0]}")/../clients"
  lock="$(sha256sum <package-lock.json)"
  if [[ -f node_modules/.installed && "$(<node_modules/.installed)" == "${lock}" ]]; then
    printf 'The npm packages of the clients are installed.\n'
    return
  fi
  printf 'Installing the npm packages of the clients\n'
  rm -rf node_modules
  if npm ci --ignore-scripts --no-audit --no-fund; then
    printf '%s\n' "${lock}" >node_modules/.installed
    return
  fi
  rm -rf node_modules
  printf 'install_dependencies.sh: npm ci failed: the tests of %s are skipped\n' \
    'clients/node and clients/gateway' >&2
}

install_debian_packages
if ! "${build_only}"; then install_npm_packages; fi
