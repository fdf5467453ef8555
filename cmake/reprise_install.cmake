# SPDX-License-Identifier: Apache-2.0
# Installs two components: `program` (bin/reprise, its manual page, completion for shells) and
# `development`, what an embedder builds against: the public headers, the libraries, a CMake package
# (find_package(reprise)) and pkg-config files. No gRPC, no protobuf.
include(CMakePackageConfigHelpers)

set(REPRISE_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/reprise")
# In the order in which a linker wants them: each before those that it needs.
set(REPRISE_INSTALLED_LIBRARIES
    reprise_engine reprise_models reprise_graphs reprise_kernels reprise_runtime)

foreach(header IN LISTS REPRISE_PUBLIC_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${REPRISE_PUBLIC_INCLUDE_DIR}/reprise/${header}"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/reprise/${folder}"
          COMPONENT development)
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT development)

# ---- CMake ----

install(TARGETS ${REPRISE_INSTALLED_LIBRARIES}
        EXPORT reprise_targets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(EXPORT reprise_targets
        NAMESPACE reprise::
        DESTINATION "${REPRISE_PACKAGE_DIR}"
        COMPONENT development)

# The shared library, whose targets file asks for nothing: a C program needs no Abseil.
set(REPRISE_HAS_C_LIBRARY FALSE)
if(TARGET reprise_c)
  set(REPRISE_HAS_C_LIBRARY TRUE)
  install(FILES "${PROJECT_SOURCE_DIR}/capi/reprise.h"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
          COMPONENT development)
  install(TARGETS reprise_c
          EXPORT reprise_c_targets
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
  install(EXPORT reprise_c_targets
          NAMESPACE reprise::
          DESTINATION "${REPRISE_PACKAGE_DIR}"
          COMPONENT development)
endif()

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

# ---- pkg-config ----

# What it names follows from what the targets link: Abseil's libraries have pkg-config files named
# as their targets are.
set(packages "")
set(libraries "")
foreach(target IN LISTS REPRISE_INSTALLED_LIBRARIES)
  list(APPEND libraries "-l${target}")
  get_target_property(linked ${target} LINK_LIBRARIES)
  list(FILTER linked INCLUDE REGEX "^absl::")
  list(TRANSFORM linked REPLACE "^absl::" "absl_")
  list(APPEND packages ${linked})
endforeach()
list(REMOVE_DUPLICATES packages)
list(SORT packages)
list(JOIN packages ", " REPRISE_PC_REQUIRES)
list(JOIN libraries " " REPRISE_PC_LIBS)
set(REPRISE_PC_LIBS_PRIVATE "-pthread")
foreach(library IN LISTS CMAKE_DL_LIBS)
  string(APPEND REPRISE_PC_LIBS_PRIVATE " -l${library}")
endforeach()
if(REPRISE_WITH_CUDA)
  string(APPEND REPRISE_PC_LIBS_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt")
endif()
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH REPRISE_PC_PREFIX "/${pkgconfig_dir}" "/")
string(REGEX REPLACE "/$" "" REPRISE_PC_PREFIX "${REPRISE_PC_PREFIX}")
set(pkgconfig_files reprise)
if(REPRISE_HAS_C_LIBRARY)
  list(APPEND pkgconfig_files reprise-c)
endif()
foreach(file IN LISTS pkgconfig_files)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${file}.pc.in"
                 "${PROJECT_BINARY_DIR}/${file}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${file}.pc"
          DESTINATION "${pkgconfig_dir}"
          COMPONENT development)
endforeach()

if(TARGET reprise)
  install(TARGETS reprise RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
  if(REPRISE_SHELL_FILES)
    install(FILES "${REPRISE_SHELL_FILES}/reprise.1"
            DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT program)
    install(FILES "${REPRISE_SHELL_FILES}/reprise.bash" RENAME reprise
            DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT program)
    install(FILES "${REPRISE_SHELL_FILES}/_reprise"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT program)
    install(FILES "${REPRISE_SHELL_FILES}/reprise.fish"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT program)
  endif()
endif()
