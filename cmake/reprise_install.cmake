# SPDX-License-Identifier: Apache-2.0
# Installs two components: `program` (bin/reprise) and `development` (what find_package(reprise) gives an embedder: the libraries
# reprise::runtime, reprise::kernels, reprise::graphs, reprise::models and reprise::engine and their headers; no gRPC, no protobuf).
include(CMakePackageConfigHelpers)

set(REPRISE_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/reprise")

install(TARGETS reprise_runtime reprise_kernels reprise_graphs reprise_models reprise_engine
        EXPORT reprise_targets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(DIRECTORY runtime kernels graphs models engine
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/reprise"
        COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(EXPORT reprise_targets
        NAMESPACE reprise::
        DESTINATION "${REPRISE_PACKAGE_DIR}"
        COMPONENT development)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/reprise-config.cmake.in"
  "${PROJECT_BINARY_DIR}/reprise-config.cmake"
  INSTALL_DESTINATION "${REPRISE_PACKAGE_DIR}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/reprise-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/reprise-config.cmake"
              "${PROJECT_BINARY_DIR}/reprise-config-version.cmake"
        DESTINATION "${REPRISE_PACKAGE_DIR}"
        COMPONENT development)

if(TARGET reprise)
  install(TARGETS reprise RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
endif()
