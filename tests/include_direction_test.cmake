# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<repository> [-DPLANT=<scratch directory>] -P include_direction_test.cmake
# Without PLANT: fails when a folder of ROOT includes what it may not. With PLANT: plants one
# violation after another in trees of its own there and fails when one goes unseen, or when an
# allowed include is reported.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/include_direction.cmake")

# expect(<violations> <file> <line of source>): what the check says of a tree of that one file.
function(expect violations file line)
  file(REMOVE_RECURSE "${PLANT}")
  file(WRITE "${PLANT}/${file}" "// A planted file.\n${line}\n")
  check_include_direction("${PLANT}" found)
  list(LENGTH found got)
  if(NOT got EQUAL violations)
    message(FATAL_ERROR
            "${file} with '${line}': ${got} violations found (${found}), wanted ${violations}")
  endif()
endfunction()

# expect_cycles(<violations> [<file> <line of source>]...): what the check for circles says of a
# tree of those files.
function(expect_cycles violations)
  file(REMOVE_RECURSE "${PLANT}")
  set(planted "${ARGN}")
  while(planted)
    list(POP_FRONT planted file line)
    file(WRITE "${PLANT}/${file}" "// A planted file.\n${line}\n")
  endwhile()
  check_include_cycles("${PLANT}" found)
  list(LENGTH found got)
  if(NOT got EQUAL violations)
    message(FATAL_ERROR "${ARGN}: ${got} circles found (${found}), wanted ${violations}")
  endif()
endfunction()

if(PLANT)
  expect(1 "runtime/a.h" "#include \"kernels/catalog.h\"")
  expect(1 "runtime/deep/a.cc" "#include \"engine/step_request.h\"")
  expect(1 "runtime/a.cc" "#include <grpcpp/grpcpp.h>")
  expect(1 "kernels/a.cu" "  #  include \"engine/step_request.h\"  // why")
  expect(1 "kernels/a.cuh" "#include \"service/server.h\"")
  expect(1 "kernels/a.h" "#include \"tests/testing/oracle.h\"")
  expect(1 "kernels/a.h" "#define REPRISE_HEADER \"tests/testing/oracle.h\"")
  expect(0 "kernels/a.h" "#define REPRISE_HEADER \"kernels/a.h\"\n#define REPRISE_TEXT \"tests\"")
  expect(1 "graphs/a.h" "#include \"reprise/v1/step_service.pb.h\"")
  expect(1 "graphs/a.cc" "#include <google/protobuf/message.h>")
  expect(1 "graphs/a.cc" "#include \"service/server.h\"")
  expect(1 "graphs/a.cc" "#include \"kernels/../service/server.h\"")
  expect(1 "service/a.cc" "#include \"tools/flags.h\"")
  expect(0 "service/a.cc" "#include \"reprise/v1/step_service.grpc.pb.h\"\n#include <vector>")
  expect(0 "service/a.cc" "#include \"engine/step_request.h\"")
  expect(1 "service/a.cc" "#include \"reprise/engine/step_request.h\"")
  expect(1 "graphs/a.cc" "#include \"kernels/catalog.h\"")
  expect(1 "graphs/a.h" "#include \"models/config/model_spec.h\"")
  expect(1 "models/a.cc" "#include \"graphs/graph_manager.h\"")
  expect(0 "graphs/a.cc" "#include \"graphs/a.h\"\n#include \"absl/status/status.h\"")
  expect(0 "graphs/a.cc" "#include \"runtime/device.h\"")
  expect(0 "engine/a.cc" "#include \"models/kv_pool.h\"\n#include \"graphs/graph_manager.h\"")
  expect(0 "engine/a.cc" "#include \"kernels/catalog.h\"")
  expect(0 "tools/a.cc" "#include \"service/server.h\"\n#include <grpcpp/grpcpp.h>")
  expect_cycles(1 "engine/a.h" "#include \"engine/a.h\"")
  expect_cycles(2 "engine/a.h" "#include \"engine/step/b.h\""
                "engine/step/b.h" "#include \"engine/a.h\"")
  expect_cycles(3 "service/a.h" "#include \"service/b.h\"" "service/b.h" "#include \"service/c.h\""
                "service/c.h" "  # include \"service/a.h\"  // why")
  expect_cycles(1 "engine/rows.h" "#include \"engine/decode_engine.h\"" "engine/decode_engine.h" "")
  expect_cycles(1 "engine/step/write.cc" "#include \"engine/decode_engine.h\"")
  expect_cycles(0 "engine/decode_engine.cc" "#include \"engine/decode_engine.h\""
                "engine/decode_engine.h" "#include \"engine/a.h\""
                "engine/a.h" "#include \"kernels/engine.h\""
                "service/a.h" "#include \"engine/decode_engine.h\"")
  file(REMOVE_RECURSE "${PLANT}")
else()
  check_include_cycles("${ROOT}" cycles)
  if(cycles)
    list(JOIN cycles "\n  " lines)
    message(FATAL_ERROR "headers of a folder include each other in a circle, or the engine's "
                        "facade is included from below:\n  ${lines}")
  endif()
  check_include_direction("${ROOT}" found)
  if(found)
    list(JOIN found "\n  " lines)
    message(FATAL_ERROR "a folder includes what it may not:\n  ${lines}")
  endif()
  file(GLOB_RECURSE headers "${ROOT}/runtime/*.h")
  if(NOT headers)
    message(FATAL_ERROR "no headers under ${ROOT}/runtime: the test looked at nothing")
  endif()
endif()
