# SPDX-License-Identifier: Apache-2.0
# Read by CTest when it starts, once per test program, from a file that reprise_test_suites() of
# reprise_targets.cmake writes. Declares one CTest test per suite, which runs the suite's cases in
# one process.
#
# A program takes as long to start and to end as many of its cases take to run, above all where they
# are skipped for want of a GPU, and longer under a sanitizer. Unlike a test per case, a suite of
# which cases are skipped has passed: tools/test.sh counts cases and names those that were skipped.
#
# In: REPRISE_PROGRAM (path), REPRISE_FOLDER (prefix and label), REPRISE_TIMEOUT (seconds). In the
# environment, if anything: REPRISE_LONG_SUITES, a regular expression of tests of which every third
# case is run.
cmake_minimum_required(VERSION 3.25)

if(NOT EXISTS "${REPRISE_PROGRAM}")
  add_test("${REPRISE_FOLDER}.NotBuilt" "${REPRISE_PROGRAM}")
  return()
endif()
execute_process(
  COMMAND "${REPRISE_PROGRAM}" --gtest_list_tests
  TIMEOUT 120
  OUTPUT_VARIABLE listing
  COMMAND_ERROR_IS_FATAL ANY)

# A suite is a line "Suite." or "Suite/0.  # TypeParam = int"; its cases are the indented lines that
# follow.
string(REGEX REPLACE "[][;]" "_" listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
set(suites "")
foreach(line IN LISTS lines)
  if(line MATCHES "^  ")
    math(EXPR cases_of_${suite} "${cases_of_${suite}} + 1")
  elseif(line MATCHES "^([A-Za-z0-9_/]+)\\.( *#.*)?$")
    set(suite "${CMAKE_MATCH_1}")
    set(cases_of_${suite} 0)
    list(APPEND suites "${suite}")
  endif()
endforeach()

# CTest starts with the tests of the highest cost, so that no long one is left for the end.
foreach(suite IN LISTS suites)
  set(test "${REPRISE_FOLDER}.${suite}")
  add_test("${test}" "${REPRISE_PROGRAM}" "--gtest_filter=${suite}.*")
  set_tests_properties(
    "${test}" PROPERTIES LABELS "${REPRISE_FOLDER}" TIMEOUT "${REPRISE_TIMEOUT}"
                         COST "${cases_of_${suite}}")
  if(DEFINED ENV{REPRISE_LONG_SUITES} AND test MATCHES "^($ENV{REPRISE_LONG_SUITES})")
    set_tests_properties("${test}" PROPERTIES ENVIRONMENT
                                              "GTEST_TOTAL_SHARDS=3;GTEST_SHARD_INDEX=0")
  endif()
endforeach()
