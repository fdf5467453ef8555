#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The proof: installs what is missing, builds everything, checks style, runs every test. Closes with
# CTest's summary.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/test.sh [--lint-all] [--long-stress] [--help]
       tools/test.sh --sanitize [--help]
       tools/test.sh --style

Installs what is missing, builds everything with warnings as errors, checks the style (clang-format,
clang-tidy, shellcheck) and runs every test. Kernels are compiled for AMD GPUs always, and for
NVIDIA GPUs where nvcc is found; tests that need a GPU are skipped by name where there is none.

clang-tidy reads only files that have not passed as they are: tools/lint.py remembers the others, in
the build folder and in tools/lint_passed.txt. "tools/lint.py --build build/cuda --record" brings
that list up to date before a commit, so that a new clone has little to check.

  --lint-all     let clang-tidy read every file
  --long-stress  let hostile clients attack a server for ten minutes, not for one, and harm sessions
                 for ten minutes, not for ten seconds, beside a model of who owns which block
  --sanitize     instead: build for AddressSanitizer and UndefinedBehaviorSanitizer and run the
                 tests, without those on emulated GPUs and the longest of those whose code others
                 run as well, then build for ThreadSanitizer and run the tests of runtime, graphs,
                 models, engine and service. Each suite of tests runs in one process there, and is
                 one test to CTest; of the longest every third case is run.
  --style        instead: check with clang-format and shellcheck alone, in seconds, before a commit
  --help         show this text
TEXT
}

fail() {
  printf 'test.sh: %s\n' "$*" >&2
  exit 1
}

# stage <what starts now>. Remembers how long the last one took.
stages=()
stage_name=""
stage_start=0
stage() {
  end_stage
  stage_name="$*"
  stage_start="${SECONDS}"
  printf '\n== %s (%d s)\n' "${stage_name}" "${SECONDS}"
}

end_stage() {
  if [[ -n "${stage_name}" ]]; then
    stages+=("$(printf '%6d s  %s' "$((SECONDS - stage_start))" "${stage_name}")")
  fi
  stage_name=""
}

sanitize=false
style=false
lint_options=()
while (($# > 0)); do
  case "$1" in
    --lint-all) lint_options=(--all) ;;
    --long-stress) export REPRISE_STRESS_SECONDS=600 ;;
    --sanitize) sanitize=true ;;
    --style) style=true ;;
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
if "${sanitize}" && ((${#lint_options[@]} > 0)); then
  fail "--lint-all and --sanitize exclude each other: --sanitize checks no style"
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/build_environment.sh
source tools/build_environment.sh
cores="$(nproc)"

# Files of this kind that are tracked, or new and not ignored, NUL-terminated.
our_files() { git ls-files -z --cached --others --exclude-standard --deduplicate -- "$@"; }

check_format() {
  our_files '*.c' '*.cc' '*.h' '*.cu' '*.cuh' |
    xargs -0 -r -n 64 -P "${cores}" clang-format --dry-run -Werror ||
    fail "the files above are not formatted; clang-format -i <file> does it"
}

check_shell() {
  our_files '*.sh' .ci/run 'packaging/debian/p*' | xargs -0 -r shellcheck --external-sources
}

summaries=()

# run_tests <preset> [ctest argument ...]. Keeps CTest's summary line: the list of skipped tests
# that CTest puts below it can be long. One test more than cores: many wait for servers and clocks.
run_tests() {
  local log="build/$1/ctest.log"
  ctest --preset "$1" --no-label-summary -j "$((cores + 1))" "${@:2}" | tee "${log}"
  summaries+=("$(grep -E '^[0-9]+% tests passed' "${log}")")
}

# run_suites <preset> [ctest argument ...]. The same where a CTest test may be a suite of cases:
# counts cases, and names those that were skipped.
run_suites() {
  run_tests "$@"
  local log="build/$1/Testing/Temporary/LastTest.log"
  printf '\nCases that passed: %d. Cases that were skipped: %d\n' \
    "$(grep -c '^\[       OK \]' "${log}")" "$(grep -c '^\[  SKIPPED \] .* ms)$' "${log}")"
  sed -n 's/^\[  SKIPPED \] \(.*\) ([0-9]* ms)$/  \1/p' "${log}"
}

# The suites that take longest under a sanitizer, by going through many numbers with the same
# code, or by measuring. Of these every third case is run there (cmake/reprise_suites.cmake), beside
# all others, since alone the last of them would leave a core idle.
long_suites='kernels\.EveryDevice/(Attention|Linear|LinearFp8|LinearInt4|LinearRounded)Test$'
long_suites+='|kernels\.Host/HostNativeAttentionTest$'
long_suites+='|engine\.EveryDevice/(WindowsInTurn|Invariance)Test$|tools\.All/DriverSeeds$'
long_suites+='|engine\.Devices/RoundedActivationsTest$'
long_suites+='|end_to_end\.(BenchLinear|Bench|Tune|Profile)Program$'

check_layout() {
  stage "Checking style: clang-format"
  check_format
  stage "Checking style: shellcheck"
  check_shell
}

run_plain() {
  local preset=hip
  if has_nvcc; then preset=cuda; fi
  check_layout
  stage "Building everything (preset ${preset})"
  cmake --preset "${preset}" -DREPRISE_BUILD_TESTS=ON -DREPRISE_HIP=ON -DREPRISE_PRECOMPILE=ON \
    -DREPRISE_UNITY=ON
  cmake --build --preset "${preset}"
  stage "Checking style: clang-tidy"
  tools/lint.py --build "build/${preset}" "${lint_options[@]}"
  stage "Running the tests"
  run_suites "${preset}"
}

run_sanitized() {
  export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
  export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
  local leaks="suppressions=${PWD}/cmake/lsan_suppressions.txt:print_suppressions=0"
  export LSAN_OPTIONS="${leaks}:${LSAN_OPTIONS:-}"
  export REPRISE_LONG_SUITES="${long_suites}"
  stage "Building for AddressSanitizer and UndefinedBehaviorSanitizer"
  cmake --preset asan
  cmake --build --preset asan
  stage "Running the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
  # Left out: programs that others build against what is installed, commands of the documents, which
  # tests of end_to_end give as well, and long comparisons of numbers, over the code of
  # GreedyParityTest and of the shorter tests of the program.
  local left_out='tree\.Package\.|documents\.|engine\.Fixtures/ParityTest$'
  left_out+='|end_to_end\.TinyGeneration$'
  run_suites asan --exclude-regex "^(${left_out})"
  stage "Building for ThreadSanitizer"
  cmake --preset tsan
  cmake --build --preset tsan --target reprise_runtime_tests reprise_graphs_tests \
    reprise_models_tests reprise_engine_tests reprise_service_tests
  stage "Running the tests of runtime, graphs, models, engine and service under ThreadSanitizer"
  # Left out: what drives the program, which is not built here, and the comparison of all fixtures
  # with transformers, which has no threads that GreedyParityTest, over the same ones, has not, and
  # takes as long as the rest together.
  left_out='service\.(PythonClient|MetricsParser)\.|engine\.Fixtures/ParityTest$'
  # Likewise long here: the same steps of many models, and of many ways to share and to draft.
  REPRISE_LONG_SUITES+='|engine\.(EveryDevice/(Models|Poison|StepsPerRequestBits|Drafts)Test'
  REPRISE_LONG_SUITES+='|SharedBlocks)$'
  run_suites tsan --tests-regex '^(runtime|graphs|models|engine|service)\.' \
    --exclude-regex "^(${left_out})"
}

if "${style}"; then
  check_layout
  exit 0
fi

stage "Installing what is missing"
tools/install_dependencies.sh
if "${sanitize}"; then run_sanitized; else run_plain; fi
end_stage
printf '\nTime of each stage:\n'
printf '%s\n' "${stages[@]}"
printf '\nAll done in %d s. CTest says:\n' "${SECONDS}"
printf '%s\n' "${summaries[@]}"
