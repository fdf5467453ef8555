# SPDX-License-Identifier: Apache-2.0
# Finds what we link against, as static archives. Debian's package files for Abseil and gRPC name
# the shared libraries, though the archives lie beside them; the imported targets are repointed
# here. Under ThreadSanitizer the shared ones are used as they are: cmake/tsan_happens_before.cc
# takes the place of some of their functions. As a part of someone's build we link what that build
# finds, and show it what we find.
set(REPRISE_LINK_ARCHIVES "${PROJECT_IS_TOP_LEVEL}")
if(REPRISE_SANITIZE MATCHES "thread")
  set(REPRISE_LINK_ARCHIVES OFF)
endif()
if(NOT PROJECT_IS_TOP_LEVEL)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
endif()

set(REPRISE_SAVED_SUFFIXES "${CMAKE_FIND_LIBRARY_SUFFIXES}")
if(REPRISE_LINK_ARCHIVES)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)

if(REPRISE_BUILD_SERVICE)
  set(Protobuf_USE_STATIC_LIBS ${REPRISE_LINK_ARCHIVES})
  set(OPENSSL_USE_STATIC_LIBS ${REPRISE_LINK_ARCHIVES})
  # gRPC's package file asks for re2, which Debian ships without one.
  if(NOT TARGET re2::re2)
    find_library(REPRISE_RE2_LIBRARY re2 REQUIRED)
    mark_as_advanced(REPRISE_RE2_LIBRARY)
    add_library(re2::re2 UNKNOWN IMPORTED)
    set_target_properties(re2::re2 PROPERTIES IMPORTED_LOCATION "${REPRISE_RE2_LIBRARY}"
                                              INTERFACE_LINK_LIBRARIES Threads::Threads)
    set(re2_FOUND TRUE)
  endif()
  find_package(Protobuf REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  find_package(CLI11 CONFIG REQUIRED)
  # HTTP for metrics. Its package file names the shared libraries; these two need nothing else.
  find_library(REPRISE_EVENT_EXTRA_LIBRARY event_extra REQUIRED)
  find_library(REPRISE_EVENT_CORE_LIBRARY event_core REQUIRED)
  mark_as_advanced(REPRISE_EVENT_EXTRA_LIBRARY REPRISE_EVENT_CORE_LIBRARY)
  add_library(reprise_libevent INTERFACE IMPORTED GLOBAL)
  target_link_libraries(reprise_libevent INTERFACE "${REPRISE_EVENT_EXTRA_LIBRARY}"
                                                   "${REPRISE_EVENT_CORE_LIBRARY}")
endif()
if(REPRISE_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(benchmark CONFIG REQUIRED)
endif()
set(CMAKE_FIND_LIBRARY_SUFFIXES "${REPRISE_SAVED_SUFFIXES}")

# Points an imported shared library at the archive of the same name in the same folder, where there
# is one.
function(reprise_use_archive target)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "SHARED_LIBRARY")
    return()
  endif()
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    get_target_property(location ${target} IMPORTED_LOCATION_${configuration})
    string(REGEX REPLACE "\\.so(\\.[0-9]+)*$" ".a" archive "${location}")
    if(EXISTS "${archive}")
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} "${archive}"
                                                 IMPORTED_NO_SONAME_${configuration} TRUE)
    endif()
  endforeach()
endfunction()

if(REPRISE_LINK_ARCHIVES)
  get_property(REPRISE_IMPORTED_TARGETS DIRECTORY "${PROJECT_SOURCE_DIR}" PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS REPRISE_IMPORTED_TARGETS)
    if(target MATCHES "^(absl|gRPC)::")
      reprise_use_archive(${target})
    endif()
  endforeach()
endif()
