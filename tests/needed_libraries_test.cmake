# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=<path> -DREADELF=<readelf> [-DALSO=<regular expression>]
#       -P needed_libraries_test.cmake
# Fails when the program, or library, needs a shared library other than libc and libm and those that
# ALSO matches: it has to start on a machine that has neither our build dependencies nor a GPU
# driver.
cmake_minimum_required(VERSION 3.25)

set(allowed "libc|libm|ld-linux-x86-64")
if(ALSO)
  string(APPEND allowed "|${ALSO}")
endif()
execute_process(COMMAND "${READELF}" --dynamic --wide "${PROGRAM}"
                OUTPUT_VARIABLE dynamic
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*" needed "${dynamic}")
if(NOT needed)
  message(FATAL_ERROR
          "${READELF} lists no needed library of ${PROGRAM}, not even libc:\n${dynamic}")
endif()
foreach(line IN LISTS needed)
  if(NOT line MATCHES ": .(${allowed})\\.so\\.[0-9]+.$")
    message(FATAL_ERROR "${PROGRAM} needs more than ${allowed}: ${line}")
  endif()
endforeach()
