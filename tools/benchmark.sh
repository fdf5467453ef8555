#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures decode on this machine's GPU, once through the embedded library (`reprise run`) and once
# over gRPC (`reprise serve` and `reprise sched`): 2 rows of 512 tokens, and 64 rows of mixed
# lengths. Writes one JSON file per measurement.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/benchmark.sh --program REPRISE --out DIR [--preset NAME] [--bandwidth RATE]

  --program    the reprise program, such as build/cuda/reprise
  --out        folder for run-2.json, sched-2.json, run-64.json, sched-64.json and machine.txt
  --preset     model shape (default llama-3.1-8b)
  --bandwidth  memory bandwidth for the floor (default 4.70TB/s, what an H200 reads)
TEXT
}

program="" out="" preset=llama-3.1-8b bandwidth=4.70TB/s
while (($# > 0)); do
  case "$1" in
    --program) program=${2:?}; shift 2 ;;
    --out) out=${2:?}; shift 2 ;;
    --preset) preset=${2:?}; shift 2 ;;
    --bandwidth) bandwidth=${2:?}; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; printf 'benchmark.sh: unknown argument "%s"\n' "$1" >&2; exit 2 ;;
  esac
done
if [[ ! -x "${program}" || -z "${out}" ]]; then usage >&2; exit 2; fi

mkdir -p "${out}"
scratch=$(mktemp -d)
server=""
clean_up() {
  if [[ -n "${server}" ]]; then
    kill -TERM "${server}" 2>/dev/null || true
    wait "${server}" || true
  fi
  rm -rf "${scratch}"
}
trap clean_up EXIT

{
  "${program}" --version
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
} | tee "${out}/machine.txt"
two=(--random-prompts 512 --max-new-tokens 256 --ignore-eos --warmup 16 --quiet)
many=(--random-prompts 64..4096 --max-new-tokens 256 --ignore-eos --warmup 16 --quiet)

printf '\n== run, 2 rows\n'
"${program}" run --preset "${preset}" --device cuda --rows 2 "${two[@]}" \
  --bandwidth "${bandwidth}" --json "${out}/run-2.json"
printf '\n== run, 64 rows\n'
"${program}" run --preset "${preset}" --device cuda --rows 64 "${many[@]}" \
  --bandwidth "${bandwidth}" --json "${out}/run-64.json"

"${program}" serve --preset "${preset}" --device cuda --listen "unix:${scratch}/reprise.sock" \
  >"${out}/serve.txt" 2>&1 &
server=$!
"${program}" health --address "unix:${scratch}/reprise.sock" --wait 120s
printf '\n== sched, 2 rows\n'
"${program}" sched --address "unix:${scratch}/reprise.sock" --requests 2 --random-prompts 512 \
  --max-new-tokens 256 --ignore-eos --warmup 16 --quiet --json "${out}/sched-2.json"
printf '\n== sched, 64 rows\n'
"${program}" sched --address "unix:${scratch}/reprise.sock" --requests 64 "${many[@]}" \
  --json "${out}/sched-64.json"
