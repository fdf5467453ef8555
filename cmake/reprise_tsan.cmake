# SPDX-License-Identifier: Apache-2.0
# Preset tsan: programs link ${REPRISE_TSAN_OBJECTS}; cmake/tsan_happens_before.cc says why. Empty
# in every other preset.

set(REPRISE_TSAN_OBJECTS "")
if(REPRISE_SANITIZE MATCHES "thread" AND REPRISE_BUILD_SERVICE)
  add_library(reprise_tsan OBJECT "${PROJECT_SOURCE_DIR}/cmake/tsan_happens_before.cc")
  target_link_libraries(reprise_tsan PUBLIC reprise_flags gRPC::grpc++ absl::synchronization)
  set(REPRISE_TSAN_OBJECTS reprise_tsan)
endif()
