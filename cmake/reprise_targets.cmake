# SPDX-License-Identifier: Apache-2.0
# Functions that declare our targets, so that every folder's list file is a plain list.

# Our own sources, and they alone, include by path in the repository.
target_include_directories(reprise_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_definitions(reprise_flags INTERFACE REPRISE_WITH_CUDA=${REPRISE_WITH_CUDA}
                                                   REPRISE_VERSION="${PROJECT_VERSION}")

# reprise_library(<folder> [SOURCES file.cc ...] [PUBLIC target ...] [PRIVATE target ...]
#                 [PRECOMPILE header ...])
# Static library reprise_<folder> with alias reprise::<folder>. PUBLIC: what its headers need;
# PRIVATE: what its sources need. PRECOMPILE: headers for reprise_precompile.
function(reprise_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PUBLIC;PRIVATE;PRECOMPILE")
  set(target reprise_${folder})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(reprise::${folder} ALIAS ${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${REPRISE_PUBLIC_INCLUDE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC}
                                  PRIVATE $<BUILD_INTERFACE:reprise_flags> ${arg_PRIVATE})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
  reprise_precompile(${target} ${arg_PRECOMPILE})
  reprise_unity(${target})
  if(folder MATCHES "^(graphs|models|engine|capi|service|tools)$")
    # Nothing there must be fast under a sanitizer, where what takes time is kernels, and sanitizers
    # make much code of gRPC's and CLI11's templates: with -O0 it is compiled in 60 % of the time of
    # -O1.
    target_compile_options(${target} PRIVATE $<$<CONFIG:Sanitize>:-O0>)
  endif()
  if(folder MATCHES "^(service|tools)$")
    reprise_fewer_checks(${target})
  endif()
  if(folder STREQUAL "tools")
    # Two thirds of the time of -O3.
    target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug,Sanitize>>:-O1>)
  endif()
endfunction()

# reprise_fewer_checks(<target>)
# Leaves out what is much of the time that a file takes to compile for UndefinedBehaviorSanitizer.
function(reprise_fewer_checks target)
  if(REPRISE_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=alignment,vptr)
  endif()
endfunction()

# reprise_precompile(<target> [<header> ...])
# With REPRISE_PRECOMPILE, what most files of the target include is read once, which halves the time
# that they take to compile. A file that lacks an include is found by tools/lint.py, which reads files
# without precompiled headers, and by any build without that option.
function(reprise_precompile target)
  if(REPRISE_PRECOMPILE AND ARGN)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # For ccache.
      target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    else()
      target_compile_options(${target} PRIVATE -fpch-preprocess)
    endif()
  endif()
endfunction()

# reprise_test(<folder> SOURCES file.cc ... [DEPENDS target ...] [TIMEOUT seconds]
#              [PRECOMPILE header ...])
# Test program reprise_<folder>_tests; each of its suites is one CTest test named <folder>.<Suite>,
# with label <folder>. Of kernels and end_to_end, whose cases take long, each case is one, named
# <folder>.<Suite>.<Name>, but for a sanitizer. TIMEOUT: of one case. PRECOMPILE: headers for
# reprise_precompile, besides those of googletest. An empty list declares nothing.
function(reprise_test folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;DEPENDS;PRECOMPILE")
  if(NOT arg_SOURCES)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(target reprise_${folder}_tests)
  add_executable(${target} ${arg_SOURCES})
  # Tests themselves have nothing that must be fast, but for the references of kernels' tests; what
  # they test is built as ever. A test file is compiled a quarter sooner with -O1 than with -O3, and
  # with -O0 sooner still: under a sanitizer in half the time of -O1.
  set(level 0)
  if(folder STREQUAL "kernels")
    set(level 1)
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Sanitize>:-O0>
                                           $<$<NOT:$<CONFIG:Debug,Sanitize>>:-O${level}>)
  reprise_fewer_checks(${target})
  reprise_precompile(${target} <gmock/gmock.h> <gtest/gtest.h> ${arg_PRECOMPILE})
  reprise_unity(${target})
  target_link_libraries(${target} PRIVATE reprise_flags ${REPRISE_TSAN_OBJECTS} ${arg_DEPENDS}
                                          reprise::testing GTest::gmock GTest::gtest_main)
  if(REPRISE_SANITIZE OR NOT folder MATCHES "^(kernels|end_to_end)$")
    reprise_test_suites(${target} ${folder} ${arg_TIMEOUT})
    return()
  endif()
  gtest_discover_tests(
    ${target}
    TEST_PREFIX ${folder}.
    NO_PRETTY_VALUES
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS ${folder})
endfunction()

# reprise_test_suites(<target> <folder> <timeout of a case in seconds>)
# One CTest test named <folder>.<Suite> per suite of a test program: cmake/reprise_suites.cmake.
function(reprise_test_suites target folder timeout)
  math(EXPR timeout "4 * ${timeout}")
  set(list "${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake")
  file(GENERATE OUTPUT "${list}" CONTENT "set(REPRISE_PROGRAM \"$<TARGET_FILE:${target}>\")
set(REPRISE_FOLDER ${folder})
set(REPRISE_TIMEOUT ${timeout})
include(\"${PROJECT_SOURCE_DIR}/cmake/reprise_suites.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${list}")
endfunction()

# reprise_benchmark(<name> SOURCES file.cc ... [DEPENDS target ...])
# Benchmark program reprise_<name>_benchmark over Google Benchmark. Built with the tests, so that it
# keeps compiling; never run by them.
function(reprise_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  if(NOT REPRISE_BUILD_TESTS OR REPRISE_SANITIZE)
    return()
  endif()
  set(target reprise_${name}_benchmark)
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE reprise_flags ${arg_DEPENDS} benchmark::benchmark_main)
endfunction()
