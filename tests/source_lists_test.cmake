# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<repository> -P source_lists_test.cmake
# Fails when a source file is in no CMakeLists.txt: code that is not built is not checked, and a
# test that is not built proves nothing.
cmake_minimum_required(VERSION 3.25)

# nearest_list(<file> <out>): the CMakeLists.txt in the closest folder above a file.
function(nearest_list file out)
  cmake_path(GET file PARENT_PATH folder)
  while(NOT EXISTS "${folder}/CMakeLists.txt")
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

set(checked 0)
foreach(folder runtime kernels graphs models engine capi proto service tools tests)
  file(GLOB_RECURSE files "${ROOT}/${folder}/*.c" "${ROOT}/${folder}/*.cc"
                          "${ROOT}/${folder}/*.cu" "${ROOT}/${folder}/*.proto")
  foreach(file IN LISTS files)
    nearest_list("${file}" list_folder)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${list_folder}" OUTPUT_VARIABLE entry)
    file(READ "${list_folder}/CMakeLists.txt" text)
    string(FIND "${text}" "${entry}" found)
    if(found EQUAL -1)
      message(SEND_ERROR "${file} is not in ${list_folder}/CMakeLists.txt")
    endif()
    math(EXPR checked "${checked} + 1")
  endforeach()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no source files under ${ROOT}: the test looked at nothing")
endif()
