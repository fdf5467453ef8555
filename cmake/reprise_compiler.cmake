# SPDX-License-Identifier: Apache-2.0
# Compiler and linker flags of our own code. Imported targets are not touched.

find_program(REPRISE_CCACHE ccache)
mark_as_advanced(REPRISE_CCACHE)
set(REPRISE_COMPILER_LAUNCHER "")
if(REPRISE_CCACHE)
  # Paths in the source folder count from there, so that a clone takes what another has compiled.
  set(REPRISE_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}")
  if(REPRISE_PRECOMPILE)
    # What ccache asks for where headers are precompiled.
    list(APPEND REPRISE_COMPILER_LAUNCHER
         CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  endif()
  list(APPEND REPRISE_COMPILER_LAUNCHER "${REPRISE_CCACHE}")
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER "${REPRISE_COMPILER_LAUNCHER}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${REPRISE_COMPILER_LAUNCHER}")
  endif()
endif()

# No -march=native: a binary runs on any x86-64, and a row's tokens are the same bits wherever it
# was built.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
# Presets asan and tsan. NDEBUG stays off: assertions of the standard library and of Abseil's
# headers are wanted there. -g1 is what a report needs, files and lines; -g takes a fifth longer to
# compile.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer")

add_library(reprise_flags INTERFACE)
target_compile_options(reprise_flags INTERFACE -Wall -Wextra -ffunction-sections -fdata-sections)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees impossible sizes in inlined std::string and std::vector code (GCC bugs 105329 and
  # 105651).
  target_compile_options(reprise_flags INTERFACE -Wno-array-bounds -Wno-restrict
                                                   -Wno-stringop-overflow)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # gRPC's generated services overload what they declare; std::stable_sort of libstdc++ 12 uses what
  # that library calls deprecated.
  target_compile_options(reprise_flags INTERFACE -Wno-overloaded-virtual
                                                   -Wno-deprecated-declarations)
endif()
# No object names the clone that it was compiled in: what two clones compile is the same. A debugger
# wants the true paths.
set(REPRISE_DEBUG_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
if(NOT CMAKE_BUILD_TYPE MATCHES "^(Debug|RelWithDebInfo)$")
  set(REPRISE_DEBUG_SOURCE_DIR "/reprise")
  target_compile_options(
    reprise_flags INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}=."
                            "-fdebug-prefix-map=${PROJECT_SOURCE_DIR}=${REPRISE_DEBUG_SOURCE_DIR}")
endif()
if(REPRISE_WARNINGS_AS_ERRORS)
  target_compile_options(reprise_flags INTERFACE -Werror)
endif()

if(REPRISE_SANITIZE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The instrumentation hides stores from this warning's analysis (GCC manual,
    # -fsanitize=address), in the standard library's headers too.
    target_compile_options(reprise_flags INTERFACE -Wno-maybe-uninitialized)
    if(REPRISE_SANITIZE MATCHES "thread")
      # It warns of fences, which ThreadSanitizer does not see. Ours order memory that other
      # processes write, of which it sees nothing either.
      target_compile_options(reprise_flags INTERFACE -Wno-tsan)
    endif()
  endif()
  # Global, so that generated sources and the test program are instrumented too.
  add_compile_options(-fsanitize=${REPRISE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${REPRISE_SANITIZE})
  if(REPRISE_SANITIZE MATCHES "undefined")
    # AddressSanitizer finds a null or wild pointer that is followed as well, and the two are a third
    # of the time that kernels take to compile. Functions that dlsym finds are called through types
    # of ours.
    add_compile_options(-fno-sanitize=null,pointer-overflow)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND REPRISE_SANITIZE MATCHES "address")
    add_compile_definitions(__SANITIZE_ADDRESS__=1)  # as g++ does itself
  endif()
else()
  add_link_options(-Wl,--gc-sections -Wl,--as-needed)
endif()

# Links a test program with gRPC in a tenth of the time of GNU ld. The version is that of
# reprise_hip.cmake, which needs the same program.
find_program(REPRISE_LLD NAMES ld.lld-19)
mark_as_advanced(REPRISE_LLD)
if(REPRISE_LLD)
  add_link_options("-fuse-ld=lld" "-B${PROJECT_BINARY_DIR}/linker")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/linker")
  file(CREATE_LINK "${REPRISE_LLD}" "${PROJECT_BINARY_DIR}/linker/ld.lld" SYMBOLIC)
endif()

# The installed program needs libm and libc alone, so that it runs on machines without our build
# dependencies.
set(REPRISE_PROGRAM_LINK_OPTIONS "")
if(NOT REPRISE_SANITIZE)
  set(REPRISE_PROGRAM_LINK_OPTIONS -static-libstdc++ -static-libgcc)
endif()
