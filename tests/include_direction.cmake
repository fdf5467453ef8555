# SPDX-License-Identifier: Apache-2.0
# check_include_direction(): which lines of a source tree include what their folder may not. Each
# folder may include itself and what is below it; graphs, which knows no kernel, includes runtime
# alone. gRPC, protobuf and generated headers are for service, tools and tests. Not a parser: it
# reads #include lines, and definitions of macros as the name of a header.

# check_include_direction(<root> <out>): sets <out> to a list of "file:line text: reason", empty
# when the tree is in order.
function(check_include_direction root out)
  set(below_runtime runtime)
  set(below_kernels kernels runtime)
  set(below_graphs graphs runtime)
  set(below_models models kernels runtime)
  set(below_engine engine models graphs kernels runtime)
  set(below_capi capi engine models graphs kernels runtime)
  set(below_service service engine models graphs kernels runtime proto)
  set(violations "")
  foreach(folder runtime kernels graphs models engine capi service)
    file(GLOB_RECURSE files RELATIVE "${root}"
         "${root}/${folder}/*.h" "${root}/${folder}/*.cc" "${root}/${folder}/*.cuh"
         "${root}/${folder}/*.cu" "${root}/${folder}/*.inc")
    foreach(file IN LISTS files)
      _check_file("${root}" "${file}" "${below_${folder}}" found)
      list(APPEND violations ${found})
    endforeach()
  endforeach()
  set(${out} "${violations}" PARENT_SCOPE)
endfunction()

function(_check_file root file allowed out)
  set(found "")
  set(named "define[ \t]+[A-Za-z0-9_]+[ \t]+\"[^\"]*\\.h\"")
  file(STRINGS "${root}/${file}" includes REGEX "^[ \t]*#[ \t]*(include[ \t]*[<\"]|${named})")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]*)[>\"].*$" "\\1" header "${line}")
    _reason_against("${header}" "${allowed}" reason)
    if(reason)
      list(APPEND found "${file}: includes ${header}: ${reason}")
    endif()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Why `header` may not be included by a folder that may include the folders `allowed`, or empty.
function(_reason_against header allowed out)
  set(reason "")
  if(header MATCHES "(^|/)\\.\\.?/")
    set(reason "relative path where the include root is the repository")
  elseif(header MATCHES "^(runtime|kernels|graphs|models|engine|capi|service|tools|tests)/")
    if(NOT CMAKE_MATCH_1 IN_LIST allowed)
      set(reason "${CMAKE_MATCH_1} is not for this folder")
    endif()
  elseif(header MATCHES "^reprise/(runtime|kernels|graphs|models|engine)/")
    set(reason "the spelling of embedders, who see the public headers alone")
  elseif(header MATCHES "^(grpc|grpcpp|google/protobuf|google/rpc|proto|reprise/v1)/")
    if(NOT "proto" IN_LIST allowed)
      set(reason "wire headers are for service, tools and tests")
    endif()
  endif()
  set(${out} "${reason}" PARENT_SCOPE)
endfunction()

# check_include_cycles(<root> <out>): sets <out> to a list of lines, one for every header of a
# folder that includes itself through other headers of the same folder (subfolders included), and
# one for every file of engine/ but decode_engine.cc and decode_engine_impl.h that includes the
# engine's facade: what several units need is vocabulary and has a header of its own.
function(check_include_cycles root out)
  set(violations "")
  foreach(folder runtime kernels graphs models engine capi service tools tests)
    file(GLOB_RECURSE files RELATIVE "${root}" "${root}/${folder}/*.h" "${root}/${folder}/*.cc")
    foreach(file IN LISTS files)
      _includes_within("${root}" "${file}" "${folder}" within_${file})
      if("engine/decode_engine.h" IN_LIST within_${file} AND folder STREQUAL "engine"
         AND NOT file MATCHES "^engine/decode_engine(\\.cc|_impl\\.h)$")
        list(APPEND violations "${file}: includes the facade, engine/decode_engine.h")
      endif()
    endforeach()
    list(FILTER files INCLUDE REGEX "\\.h$")
    # A header that is in no circle loses all its includes in the end; those that never do are in a
    # circle, or lead to one.
    set(left "${files}")
    set(before "")
    while(NOT left STREQUAL before)
      set(before "${left}")
      foreach(file IN LISTS before)
        set(pending "${within_${file}}")
        list(FILTER pending INCLUDE REGEX "\\.h$")
        set(waits FALSE)
        foreach(header IN LISTS pending)
          if(header IN_LIST left)
            set(waits TRUE)
            break()
          endif()
        endforeach()
        if(NOT waits)
          list(REMOVE_ITEM left "${file}")
        endif()
      endforeach()
    endwhile()
    foreach(file IN LISTS left)
      list(APPEND violations "${file}: is in a circle of includes, or includes one")
    endforeach()
  endforeach()
  set(${out} "${violations}" PARENT_SCOPE)
endfunction()

# The headers of `folder` that `file` includes.
function(_includes_within root file folder out)
  set(headers "")
  file(STRINGS "${root}/${file}" includes REGEX "^[ \t]*#[ \t]*include[ \t]*\"${folder}/")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*$" "\\1" header "${line}")
    list(APPEND headers "${header}")
  endforeach()
  set(${out} "${headers}" PARENT_SCOPE)
endfunction()
