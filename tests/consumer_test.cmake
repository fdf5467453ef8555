# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=<our build> -DSOURCE=<tests/consumer> -DSCRATCH=<dir> -DGENERATOR=<g> -DFLAGS=<c++ flags> -P consumer_test.cmake
# Installs the development files into a prefix of its own, builds the consumer project against them and runs it.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --component development --prefix "${SCRATCH}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${SCRATCH}/build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix"
    "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON)
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/consumer")

# An embedder needs neither gRPC nor protobuf.
file(GLOB_RECURSE installed "${SCRATCH}/prefix/*.cmake")
if(NOT installed)
  message(FATAL_ERROR "nothing was installed under ${SCRATCH}/prefix")
endif()
foreach(file IN LISTS installed)
  file(STRINGS "${file}" wire REGEX "[gG][rR][pP][cC]|[pP]rotobuf")
  if(wire)
    message(FATAL_ERROR "${file} asks for gRPC or protobuf: ${wire}")
  endif()
endforeach()
file(REMOVE_RECURSE "${SCRATCH}")
