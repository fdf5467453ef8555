#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 machine to text coming out of a model: install, build, serve, drive the
# server from a scheduler process.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/quickstart.sh [--program FILE] [--help]

Installs what is missing, builds Reprise, serves examples/byte-llama on a unix socket and drives it
with the reference scheduler (`reprise sched`), a separate process that speaks the public gRPC API
alone. Then it stops the server. It uses CUDA where nvcc and an NVIDIA GPU are found and the CPU
elsewhere, and leaves nothing behind but build/.

  --program FILE  a reprise program that there is, such as build/host/reprise: installs and builds
                  nothing, and serves with this one
  --help          show this text
TEXT
}

fail() {
  printf 'quickstart.sh: %s\n' "$*" >&2
  exit 1
}

stage() { printf '\n== %s\n' "$*"; }

program=""
while (($# > 0)); do
  case "$1" in
    --help | -h)
      usage
      exit 0
      ;;
    --program)
      (($# > 1)) || fail "--program: got no value, allowed: a reprise program"
      [[ -f "$2" && -x "$2" ]] \
        || fail "--program: got \"$2\", allowed: a reprise program, such as build/host/reprise"
      program="$(realpath "$2")"
      shift 2
      ;;
    *)
      usage >&2
      fail "unknown argument \"$1\""
      ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/build_environment.sh
source tools/build_environment.sh

server=""
scratch=""
# Reached on every way out, Ctrl-C included.
clean_up() {
  local status=$?
  trap - EXIT INT TERM
  if [[ -n "${server}" ]]; then stop_process "${server}" || true; fi
  if [[ -n "${scratch}" ]]; then rm -rf "${scratch}"; fi
  if ((status != 0)); then printf '\nquickstart.sh: failed (status %d)\n' "${status}" >&2; fi
  exit "${status}"
}

# Asks for a clean stop, waits up to 20 s, then insists. Status: that of the process.
stop_process() {
  kill -TERM "$1" 2>/dev/null || true
  for _ in {1..200}; do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
  wait "$1"
}

wait_until_serving() {
  for _ in {1..60}; do
    kill -0 "${server}" 2>/dev/null || return 1
    if "${program}" health --address "${address}" --wait 1s >/dev/null 2>&1; then return 0; fi
  done
  return 1
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

install_and_build() {
  stage "1/5 Installing what is missing"
  tools/install_dependencies.sh --build-only

  local preset=host
  if has_nvcc && has_nvidia_gpu; then preset=cuda; fi
  stage "2/5 Building (preset ${preset}, Release)"
  cmake --preset "${preset}" -DREPRISE_BUILD_TESTS=OFF
  cmake --build --preset "${preset}" --target reprise
  program="build/${preset}/reprise"
}

if [[ -z "${program}" ]]; then
  install_and_build
else
  stage "1/5 and 2/5 Nothing to install or build: the program is ${program}"
fi

scratch="$(mktemp -d "${TMPDIR:-/tmp}/reprise.XXXXXX")"
address="unix:${scratch}/reprise.sock"
stage "3/5 Starting the server: reprise serve --model examples/byte-llama --listen ${address}"
"${program}" serve --model examples/byte-llama --listen "${address}" >"${scratch}/serve.log" 2>&1 &
server=$!
if ! wait_until_serving; then
  tail -n 40 "${scratch}/serve.log" >&2
  fail "the server ended before it was ready, or was not ready after 60 s; its output is above"
fi
tail -n 5 "${scratch}/serve.log"

stage "4/5 Driving it from another process: reprise sched --address ${address} --demo"
"${program}" sched --address "${address}" --demo

stage "5/5 Stopping the server"
stopping="${server}"
server=""
if ! stop_process "${stopping}"; then
  tail -n 40 "${scratch}/serve.log" >&2
  fail "the server did not stop cleanly; its output is above"
fi
printf 'Stopped cleanly. The program is %s; start with %s --help.\n' "${program}" "${program}"
