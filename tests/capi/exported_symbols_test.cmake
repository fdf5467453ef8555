# SPDX-License-Identifier: Apache-2.0
# cmake -DLIBRARY=<libreprise.so> -DNM=<nm> -DREADELF=<readelf> -DFOLDER=<capi/>
#       -P exported_symbols_test.cmake
# Fails when the library exports anything but what reprise.map lists, each with a version, when that
# is not what reprise.h declares, or when the library's name is not libreprise.so.0.
cmake_minimum_required(VERSION 3.25)

file(STRINGS "${FOLDER}/reprise.map" listed REGEX "^ +reprise_[a-z_0-9]+;$")
list(TRANSFORM listed REPLACE "[ ;]" "")

set(declared "")
file(STRINGS "${FOLDER}/reprise.h" lines)
foreach(line IN LISTS lines)
  string(REGEX REPLACE "//.*" "" line "${line}")
  if(line MATCHES "(reprise_[a-z_0-9]+)\\(")
    list(APPEND declared "${CMAKE_MATCH_1}")
  endif()
endforeach()

execute_process(COMMAND "${NM}" --dynamic --defined-only --with-symbol-versions "${LIBRARY}"
                OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
set(exported "")
string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
foreach(line IN LISTS lines)
  if(line MATCHES "^[0-9a-f]+ T (reprise_[a-z_0-9]+)@@REPRISE_[0-9.]+$")
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

execute_process(COMMAND "${READELF}" --dynamic --wide "${LIBRARY}"
                OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
if(NOT dynamic MATCHES "\\(SONAME\\)[^\n]*\\[libreprise\\.so\\.0\\]")
  message(SEND_ERROR "${LIBRARY} is not named libreprise.so.0:\n${dynamic}")
endif()
