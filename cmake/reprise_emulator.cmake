# SPDX-License-Identifier: Apache-2.0
# How thread-style kernels are compiled for the emulator (tests/emulator).
#
# g++ is asked to call a function before every access to memory, as for ThreadSanitizer; the
# functions are those of tests/emulator, and that sanitizer's runtime is not linked. -O1 and not
# more: above it g++ merges equal code and turns calls into jumps, so that barriers lose places of
# their own, and makes vectors of loads and loads ahead of a branch, which touch what the source
# does not.
set(REPRISE_EMULATED_FLAGS -O1 -g1 -finline-functions -fno-optimize-sibling-calls)
if(NOT REPRISE_SANITIZE)
  # Headers that ask for __SANITIZE_THREAD__ would expect the runtime.
  list(APPEND REPRISE_EMULATED_FLAGS
       -fsanitize=thread -U__SANITIZE_THREAD__
       -include "${PROJECT_SOURCE_DIR}/tests/emulator/instrumented_library.h")
endif()
if(REPRISE_SANITIZE MATCHES "address")
  # AddressSanitizer's second stack, which finds uses of a frame that is gone, is a few megabytes
  # for each fiber, all of them touched in turn: half of the time of the kernels' tests. Kernels
  # keep no address of a frame.
  list(APPEND REPRISE_EMULATED_FLAGS --param=asan-use-after-return=0)
endif()

# reprise_emulated_kernels(<target> UNIT mma|mfma|wmma SOURCES file.cc ...)
# Adds sources that hold emulated kernels to a target of this folder, and links the emulator. UNIT:
# what the target's kernels/device is compiled for, a kind of matrix unit. Not under
# ThreadSanitizer, where nothing of the emulator is built.
function(reprise_emulated_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "UNIT" "SOURCES")
  get_target_property(others ${target} SOURCES)
  target_sources(${target} PRIVATE ${arg_SOURCES})
  if(others)
    set_source_files_properties(${arg_SOURCES}
                                PROPERTIES COMPILE_OPTIONS "${REPRISE_EMULATED_FLAGS}")
  else()
    target_compile_options(${target} PRIVATE ${REPRISE_EMULATED_FLAGS})
    reprise_unity(${target})
  endif()
  string(TOUPPER "${arg_UNIT}" unit)
  target_compile_definitions(
    ${target} PRIVATE REPRISE_TARGET_HEADER="tests/emulator/device/platform.h"
                      REPRISE_EMULATE_${unit})
  target_link_libraries(${target} PRIVATE reprise::emulator)
endfunction()
