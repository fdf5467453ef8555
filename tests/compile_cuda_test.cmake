# SPDX-License-Identifier: Apache-2.0
# cmake -DSCRIPT=<cmake/compile_cuda.cmake> -DSCRATCH=<folder> -P compile_cuda_test.cmake
# What a compiler says decides whether the build goes on.
cmake_minimum_required(VERSION 3.25)

# expect(<wanted exit code> <whether the output stays> <command ...>)
function(expect wanted stays)
  set(output "${SCRATCH}/code.bin")
  file(WRITE "${output}" "code")
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" -P "${SCRIPT}" -- ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT result EQUAL wanted)
    message(FATAL_ERROR "${ARGN}: exit code ${result}, expected ${wanted}: ${said}")
  endif()
  if(stays AND NOT EXISTS "${output}" OR NOT stays AND EXISTS "${output}")
    message(FATAL_ERROR "${ARGN}: whether the output is there is not ${stays}")
  endif()
endfunction()

expect(0 TRUE "${CMAKE_COMMAND}" -E echo "ptxas info : (C7519) warpgroup.arrive is injected")
expect(1 FALSE "${CMAKE_COMMAND}" -E echo
       "ptxas info : (C7520) Potential Performance Loss: wgmma.mma_async instructions are serialized")
expect(1 TRUE "${CMAKE_COMMAND}" -E false)
file(REMOVE_RECURSE "${SCRATCH}")
