# SPDX-License-Identifier: Apache-2.0
# How thread-style kernels are compiled for the emulator (tests/emulator).
#
# g++ is asked to call a function before every access to memory, as for ThreadSanitizer; the functions are those of tests/emulator, and
# that sanitizer's runtime is not linked. Calls of barriers keep places of their own: nothing merges equal code or turns a call into
# a jump. Vectors of loads could touch what the source does not.
set(REPRISE_EMULATED_FLAGS -O2 -g1 -fno-crossjumping -fno-tree-tail-merge -fno-ipa-icf
                           -fno-optimize-sibling-calls -fno-tree-vectorize)
if(NOT REPRISE_SANITIZE)
  # Headers that ask for __SANITIZE_THREAD__ would expect the runtime.
  list(APPEND REPRISE_EMULATED_FLAGS
       -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -U__SANITIZE_THREAD__
       -include "${PROJECT_SOURCE_DIR}/tests/emulator/instrumented_library.h")
endif()

# reprise_emulated_kernels(<target> SOURCES file.cc ...)
# Adds sources that hold emulated kernels to a target of this folder, and links the emulator. Not under ThreadSanitizer, where nothing
# of the emulator is built.
function(reprise_emulated_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  target_sources(${target} PRIVATE ${arg_SOURCES})
  set_source_files_properties(${arg_SOURCES} PROPERTIES COMPILE_OPTIONS "${REPRISE_EMULATED_FLAGS}")
  target_link_libraries(${target} PRIVATE reprise::emulator)
endfunction()
