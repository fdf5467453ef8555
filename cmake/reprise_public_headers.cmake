# SPDX-License-Identifier: Apache-2.0
# The public headers: what an embedder includes, as "reprise/graphs/graph_manager.h", and all that
# is installed. Everything else is ours alone.
#
# Our own sources include headers by their path in the repository ("runtime/device.h"). In an
# embedder's program such names could be anyone's, so the public headers are written once more under
# ${PROJECT_BINARY_DIR}/include/reprise, with every include of ours spelled "reprise/...". Programs
# in this build, as a subproject of theirs, and against an installed Reprise see these. That the
# list is complete shows when a public header includes one that is not in it: then nothing of that
# name is found.
set(REPRISE_PUBLIC_HEADERS
    engine/decode_engine.h
    engine/engine_info.h
    engine/engine_options.h
    engine/kv_export.h
    engine/kv_part.h
    engine/resolved_options.h
    engine/sampling_params.h
    engine/session_info.h
    engine/step_request.h
    engine/step_result.h
    graphs/bucket.h
    graphs/bucket_table.h
    graphs/graph_manager.h
    graphs/graph_nodes.h
    graphs/graph_report.h
    graphs/memory_range.h
    graphs/pointer_report.h
    graphs/profiled_graphs.h
    kernels/step/finish_reason.h
    kernels/step/step_limits.h
    kernels/weight_format.h
    models/config/model_presets.h
    models/config/model_spec.h
    models/config/weight_quantization.h
    models/model_source.h
    runtime/check.h
    runtime/device.h
    runtime/dtype.h
    runtime/matrix_unit.h
    runtime/memory/arena.h
    runtime/memory/buffer.h
    runtime/memory/mapped_ring.h
    runtime/memory/shared_buffer.h
    runtime/shared_memory.h
    runtime/status_macros.h)
set(REPRISE_PUBLIC_INCLUDE_DIR "${PROJECT_BINARY_DIR}/include")

# What an earlier list has left there.
file(GLOB_RECURSE stale RELATIVE "${REPRISE_PUBLIC_INCLUDE_DIR}/reprise"
     "${REPRISE_PUBLIC_INCLUDE_DIR}/reprise/*")
list(REMOVE_ITEM stale ${REPRISE_PUBLIC_HEADERS})
foreach(header IN LISTS stale)
  file(REMOVE "${REPRISE_PUBLIC_INCLUDE_DIR}/reprise/${header}")
endforeach()

# For C, as <reprise.h>.
configure_file("${PROJECT_SOURCE_DIR}/capi/reprise.h" "${REPRISE_PUBLIC_INCLUDE_DIR}/reprise.h"
               COPYONLY)

foreach(header IN LISTS REPRISE_PUBLIC_HEADERS)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${header}")
  file(READ "${PROJECT_SOURCE_DIR}/${header}" text)
  string(REGEX REPLACE "#include \"(engine|graphs|kernels|models|runtime)/"
                       "#include \"reprise/\\1/" text "${text}")
  file(CONFIGURE OUTPUT "${REPRISE_PUBLIC_INCLUDE_DIR}/reprise/${header}" CONTENT "${text}" @ONLY)
endforeach()
