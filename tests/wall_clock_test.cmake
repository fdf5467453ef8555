# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<repository> -P wall_clock_test.cmake
# Fails when a source file reads the wall clock that is not listed here. It may jump: times that
# something waits for are of a steady clock. What is listed says the date, or gives gRPC's calls,
# which turn it into a steady time at once, the present moment and a little more.
cmake_minimum_required(VERSION 3.25)

set(may_read
    engine/decode_engine_impl.cc    # tells engines at one address apart
    service/server.cc               # when the server started; Shutdown
    service/unary_step.cc           # what is left of a call's deadline when it comes
    service/utc_time.cc             # logs, names of recordings
    tools/admin_server.cc           # a call's deadline
    tools/connection.cc             # likewise, and waits for a connection
    tools/record.cc                 # the date of a result
    tools/sched/client_resume.cc    # waits for a connection
)
set(seen "")
set(checked 0)
foreach(folder runtime kernels graphs models engine capi service tools)
  file(GLOB_RECURSE files "${ROOT}/${folder}/*.cc" "${ROOT}/${folder}/*.h" "${ROOT}/${folder}/*.cu")
  foreach(file IN LISTS files)
    math(EXPR checked "${checked} + 1")
    file(STRINGS "${file}" found REGEX "system_clock|CLOCK_REALTIME|gettimeofday|absl::Now")
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${ROOT}" OUTPUT_VARIABLE name)
    if(found AND NOT name IN_LIST may_read)
      message(SEND_ERROR "${name} reads the wall clock: ${found}")
    elseif(found)
      list(APPEND seen "${name}")
    endif()
  endforeach()
endforeach()
foreach(name IN LISTS may_read)
  if(NOT name IN_LIST seen)
    message(SEND_ERROR "${name} does not read the wall clock: take it from the list")
  endif()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no source files under ${ROOT}: the test looked at nothing")
endif()
