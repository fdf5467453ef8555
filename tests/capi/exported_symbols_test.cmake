# SPDX-License-Identifier: Apache-2.0
# cmake -DLIBRARY=<libreprise.so> -DNM=<nm> -DREADELF=<readelf> -DFOLDER=<capi/>
#       -P exported_symbols_test.cmake
# Fails when the library exports anything but what reprise.map lists, each with the version that it
# is listed under, when that is not what reprise.h declares, when a list that programs were linked with
# has changed, or when the library's name is not libreprise.so.0.
cmake_minimum_required(VERSION 3.25)

file(STRINGS "${FOLDER}/reprise.map" lines REGEX "^( +reprise_[a-z_0-9]+;|REPRISE_[0-9.]+ {)$")
set(listed "")  # with versions, as nm has them
foreach(line IN LISTS lines)
  if(line MATCHES "^(REPRISE_[0-9.]+) {$")
    set(version "${CMAKE_MATCH_1}")
  else()
    string(REGEX REPLACE "[ ;]" "" name "${line}")
    list(APPEND listed "${name}@@${version}")
  endif()
endforeach()

set(declared "")
file(STRINGS "${FOLDER}/reprise.h" lines)
foreach(line IN LISTS lines)
  string(REGEX REPLACE "//.*" "" line "${line}")
  if(line MATCHES "(reprise_[a-z_0-9]+)\\(")
    string(REGEX MATCH "${CMAKE_MATCH_1}@@REPRISE_[0-9.]+" with_version "${listed}")
    list(APPEND declared "${with_version}")
  endif()
endforeach()

execute_process(COMMAND "${NM}" --dynamic --defined-only --with-symbol-versions "${LIBRARY}"
                OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
set(exported "")
string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
foreach(line IN LISTS lines)
  if(line MATCHES "^[0-9a-f]+ T (reprise_[a-z_0-9]+@@REPRISE_[0-9.]+)$")
    list(APPEND exported "${CMAKE_MATCH_1}")
  elseif(NOT line MATCHES "^[0-9a-f]+ A REPRISE_[0-9.]+")  # the versions themselves
    message(SEND_ERROR "exported, and no function of reprise.h with a version: ${line}")
  endif()
endforeach()

foreach(list listed declared exported)
  list(SORT ${list})
endforeach()
list(LENGTH listed count)
if(count EQUAL 0 OR NOT listed STREQUAL declared OR NOT listed STREQUAL exported)
  message(SEND_ERROR "reprise.map lists: ${listed}\nreprise.h declares: ${declared}\n"
                     "${LIBRARY} exports: ${exported}")
endif()

set(first ${listed})
list(FILTER first INCLUDE REGEX "@@REPRISE_0\\.1$")
string(MD5 hash "${first}")
if(NOT hash STREQUAL "b02c218eff6862d5c93be3eec9d292f3")
  message(SEND_ERROR "REPRISE_0.1 of reprise.map is another list than it was: ${first}")
endif()

execute_process(COMMAND "${READELF}" --dynamic --wide "${LIBRARY}"
                OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
if(NOT dynamic MATCHES "\\(SONAME\\)[^\n]*\\[libreprise\\.so\\.0\\]")
  message(SEND_ERROR "${LIBRARY} is not named libreprise.so.0:\n${dynamic}")
endif()
