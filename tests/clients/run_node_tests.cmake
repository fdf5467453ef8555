# SPDX-License-Identifier: Apache-2.0
# cmake -DNODE=<node> -DPACKAGES=<clients/> -DPACKAGE=<folder in it> -DPROGRAM=<reprise>
#       -P run_node_tests.cmake
# Runs the tests of an npm package. Says "SKIPPED: " and the reason where they cannot run.
cmake_minimum_required(VERSION 3.25)

if(NOT NODE)
  message("SKIPPED: there is no node (Debian: nodejs)")
  return()
endif()
execute_process(COMMAND "${NODE}" --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "[0-9]+" major "${version}")
if(major LESS 18)
  string(STRIP "${version}" version)
  message("SKIPPED: ${NODE}: got ${version}, allowed: v18 or newer")
  return()
endif()
if(NOT EXISTS "${PACKAGES}/node_modules/.package-lock.json")
  message("SKIPPED: ${PACKAGES}/node_modules is missing (tools/install_dependencies.sh)")
  return()
endif()
execute_process(COMMAND "${CMAKE_COMMAND}" -E env "REPRISE_PROGRAM=${PROGRAM}" "${NODE}" --test
                WORKING_DIRECTORY "${PACKAGES}/${PACKAGE}" RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PACKAGE}: tests failed (${result})")
endif()
