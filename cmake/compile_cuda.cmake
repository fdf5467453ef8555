# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=<file> -P compile_cuda.cmake -- <nvcc> <argument ...> <source>
# Runs nvcc, which writes OUTPUT, and fails where it says that products of warpgroups were made to
# wait for each other: a kernel then takes longer for the same results (docs/benchmarks/README.md,
# "The step at 8d1d61c"), and no other test would see it. OUTPUT is not there then.
set(command "")
set(is_command FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_command)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(is_command TRUE)
  endif()
endforeach()
execute_process(COMMAND ${command} OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE result)
if(said)
  message("${said}")
endif()
if(NOT result EQUAL 0)
  message(FATAL_ERROR "nvcc failed: ${result}")
endif()
if(said MATCHES "wgmma.mma_async instructions are serialized")
  list(GET command -1 source)
  file(REMOVE "${OUTPUT}")
  message(FATAL_ERROR "${source}: products of warpgroups are serialized (above); allowed: none. "
                      "Often a branch that differs between warps, in the loop around them, is why.")
endif()
