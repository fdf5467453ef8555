#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The proof: installs what is missing, builds everything, checks style, runs every test. Closes with CTest's summary.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/test.sh [--sanitize] [--help]

Installs what is missing, builds everything with warnings as errors, checks the style (clang-format, clang-tidy,
shellcheck) and runs every test. Kernels are compiled for AMD GPUs always, and for NVIDIA GPUs where nvcc is found; tests
that need a GPU are skipped by name where there is none.

  --sanitize  instead: build for AddressSanitizer and UndefinedBehaviorSanitizer and run every test, then build for
              ThreadSanitizer and run the tests of runtime, graphs, models, engine and service
  --help      show this text
TEXT
}

fail() {
  printf 'test.sh: %s\n' "$*" >&2
  exit 1
}

stage() { printf '\n== %s (%d s)\n' "$*" "${SECONDS}"; }

sanitize=false
while (($# > 0)); do
  case "$1" in
    --sanitize) sanitize=true ;;
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

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="${PWD}"
# shellcheck source=tools/build_environment.sh
source tools/build_environment.sh
cores="$(nproc)"

# Files of this kind that are tracked, or new and not ignored, NUL-terminated.
our_files() { git ls-files -z --cached --others --exclude-standard --deduplicate -- "$@"; }

check_format() {
  our_files '*.cc' '*.h' '*.cu' '*.cuh' |
    xargs -0 -r -n 64 -P "${cores}" clang-format --dry-run -Werror ||
    fail "the files above are not formatted; clang-format -i <file> does it"
}

check_shell() {
  our_files '*.sh' .ci/run | xargs -0 -r shellcheck --external-sources
}

# Lints every source file that the build knows, but for two that clang 14 cannot read: one compiles itself once per instruction set by
# rules of g++, one uses _Float16. Prints only what it finds.
check_tidy() {
  local log="build/$1/clang-tidy.log"
  local unreadable='kernels/linear/host_native|tests/testing/tiny_model'
  if ! run-clang-tidy -p "build/$1" -quiet -j "${cores}" \
    "^${root}/(?!(${unreadable})\.cc$)(runtime|kernels|graphs|models|engine|service|tools|tests)/.*\.cc$" >"${log}" 2>&1; then
    grep -E -A 4 '(warning|error):' "${log}" >&2 || tail -n 40 "${log}" >&2
    fail "clang-tidy found the above (all of it: ${log})"
  fi
}

summaries=()

# run_tests <preset> [ctest argument ...]. Keeps CTest's summary line: the list of skipped tests that CTest puts below it can be long.
run_tests() {
  local log="build/$1/ctest.log"
  ctest --preset "$1" --no-label-summary -j "${cores}" "${@:2}" | tee "${log}"
  summaries+=("$(grep -E '^[0-9]+% tests passed' "${log}")")
}

run_plain() {
  local preset=hip
  if has_nvcc; then preset=cuda; fi
  stage "Building everything (preset ${preset})"
  cmake --preset "${preset}" -DREPRISE_BUILD_TESTS=ON -DREPRISE_HIP=ON
  cmake --build --preset "${preset}"
  stage "Checking style: clang-format"
  check_format
  stage "Checking style: shellcheck"
  check_shell
  stage "Checking style: clang-tidy"
  check_tidy "${preset}"
  stage "Running the tests"
  run_tests "${preset}"
}

run_sanitized() {
  export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
  export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
  stage "Building for AddressSanitizer and UndefinedBehaviorSanitizer"
  cmake --preset asan
  cmake --build --preset asan
  stage "Running the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
  run_tests asan
  stage "Building for ThreadSanitizer"
  cmake --preset tsan
  cmake --build --preset tsan --target reprise_runtime_tests reprise_graphs_tests reprise_models_tests
    reprise_engine_tests reprise_service_tests
  stage "Running the tests of runtime, graphs, models, engine and service under ThreadSanitizer"
  # The Python client drives the program, which is not built here.
  run_tests tsan --tests-regex '^(runtime|graphs|models|engine|service)\.' --exclude-regex '^service\.PythonClient\.'
}

stage "Installing what is missing"
tools/install_dependencies.sh
if "${sanitize}"; then run_sanitized; else run_plain; fi
printf '\nAll done in %d s. CTest says:\n' "${SECONDS}"
printf '%s\n' "${summaries[@]}"
