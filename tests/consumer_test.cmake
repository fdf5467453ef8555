# SPDX-License-Identifier: Apache-2.0
# How embedders use Reprise, tried:
# cmake -DSTEP=<step> <definitions of the step> -P consumer_test.cmake
#   install     -DBUILD -DPREFIX -DLIBDIR -DHEADERS -DSOURCE -DVERSION: installs the development
#               files of our build into PREFIX; what lies there must be what it should be, and
#               nothing else
#   seams       -DPREFIX -DSCRATCH: no installed header is one that only our tests and
#               measurements use, or speaks of what they do
#   package     -DPREFIX -DSOURCE -DSCRATCH: a CMake project that finds the package
#   pkgconfig   -DPREFIX -DLIBDIR -DSOURCE -DSCRATCH -DPKG_CONFIG: a compiler and pkg-config
#   readme      the same: the C++ program that README.md shows
#   c           the same: a CMake project in C, and a C compiler and pkg-config
#   subproject  -DSOURCE -DSCRATCH: a CMake project that adds our repository
# All: -DC_LIBRARY=<whether libreprise.so is built> -DCC=<C compiler> -DCXX=<compiler>
#      -DFLAGS=<its flags> -DGENERATOR=<CMake's>. SOURCE is our repository.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# ---- install ----

# What an installation holds beside the headers, and beside what is CMake's own.
set(REPRISE_OTHER_FILES
    ${LIBDIR}/cmake/reprise/reprise-config-version.cmake
    ${LIBDIR}/cmake/reprise/reprise-config.cmake
    ${LIBDIR}/libreprise_engine.a
    ${LIBDIR}/libreprise_graphs.a
    ${LIBDIR}/libreprise_kernels.a
    ${LIBDIR}/libreprise_models.a
    ${LIBDIR}/libreprise_runtime.a
    ${LIBDIR}/pkgconfig/reprise.pc
    share/doc/reprise/LICENSE)
set(REPRISE_COMPONENTS "runtime, graphs, engine")
if(C_LIBRARY)
  string(APPEND REPRISE_COMPONENTS ", c")
  list(APPEND REPRISE_OTHER_FILES
       include/reprise.h
       ${LIBDIR}/libreprise.so
       ${LIBDIR}/libreprise.so.0
       ${LIBDIR}/libreprise.so.${VERSION}
       ${LIBDIR}/pkgconfig/reprise-c.pc)
endif()

function(check_files)
  file(GLOB_RECURSE installed LIST_DIRECTORIES false RELATIVE "${PREFIX}" "${PREFIX}/*")
  list(FILTER installed EXCLUDE
       REGEX "^${LIBDIR}/cmake/reprise/reprise_(c_)?targets[-a-z]*\\.cmake$")
  set(wanted ${REPRISE_OTHER_FILES})
  list(TRANSFORM HEADERS PREPEND "include/reprise/" OUTPUT_VARIABLE headers)
  list(APPEND wanted ${headers})
  set(extra ${installed})
  list(REMOVE_ITEM extra ${wanted})
  list(REMOVE_ITEM wanted ${installed})
  if(extra OR wanted)
    message(FATAL_ERROR "installed, though it should not be: ${extra}\nnot installed: ${wanted}")
  endif()
endfunction()

# An embedder needs neither gRPC nor protobuf, and our paths mean nothing to it.
function(check_texts)
  file(GLOB_RECURSE files "${PREFIX}/*.cmake" "${PREFIX}/*.pc" "${PREFIX}/*.h")
  foreach(file IN LISTS files)
    if(file MATCHES "\\.h$")
      set(pattern "#include [<\"](grpc|google|engine/|graphs/|kernels/|models/|runtime/)")
    else()
      set(pattern "[gG][rR][pP][cC]|[pP]rotobuf|nlohmann|[gG][tT]est")
    endif()
    file(STRINGS "${file}" foreign REGEX "${pattern}")
    file(READ "${file}" text)
    string(FIND "${text}" "${BUILD}" in_build)
    string(FIND "${text}" "${SOURCE}" in_source)
    if(foreign OR NOT in_build EQUAL -1 OR NOT in_source EQUAL -1)
      message(FATAL_ERROR
              "${file} names what an embedder does not have: ${foreign}, or a path of ours")
    endif()
  endforeach()
endfunction()

# The headers behind which what only our tests and measurements use stands, and words for it that a
# public header has no reason to say.
set(REPRISE_SEAM_HEADERS
    engine/diagnostics.h engine/engine_profiler.h engine/start_report.h
    engine/step_stamps.h runtime/host/test_delays.h)
set(REPRISE_SEAM_WORDS
    "[pP]oison|[rR]andom_?[kK][vV]|max_delay|delay_seed|TestDelays|CaptureProfiled|[sS]tamped")

# holds_seams(<variable> <include directory>): what of them is there, empty if nothing.
function(holds_seams variable directory)
  set(found "")
  foreach(header IN LISTS REPRISE_SEAM_HEADERS)
    if(EXISTS "${directory}/${header}")
      list(APPEND found "${header}")
    endif()
  endforeach()
  file(GLOB_RECURSE headers RELATIVE "${directory}" "${directory}/*.h")
  foreach(header IN LISTS headers)
    file(STRINGS "${directory}/${header}" lines REGEX "${REPRISE_SEAM_WORDS}")
    foreach(line IN LISTS lines)
      list(APPEND found "${header}: ${line}")
    endforeach()
  endforeach()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

function(check_seams)
  if(NOT EXISTS "${PREFIX}/include/reprise/engine/decode_engine.h")
    message(FATAL_ERROR "nothing is installed in ${PREFIX}")
  endif()
  holds_seams(found "${PREFIX}/include/reprise")
  if(found)
    message(FATAL_ERROR "only our tests and measurements use this, and it is installed: ${found}")
  endif()
  # What is there is found.
  file(REMOVE_RECURSE "${SCRATCH}")
  file(WRITE "${SCRATCH}/engine/diagnostics.h" "")
  file(WRITE "${SCRATCH}/engine/engine_options.h" "bool poison = false  // NaN
")
  holds_seams(found "${SCRATCH}")
  if(NOT found STREQUAL
     "engine/diagnostics.h;engine/engine_options.h: bool poison = false  // NaN")
    message(FATAL_ERROR "a header and an option were planted, and this was found: ${found}")
  endif()
endfunction()

function(check_components)
  find_package(reprise 0.1 QUIET COMPONENTS graphs service CONFIG PATHS "${PREFIX}" NO_DEFAULT_PATH)
  set(said "${reprise_NOT_FOUND_MESSAGE}")
  if(reprise_FOUND OR NOT said MATCHES "\"service\", allowed: ${REPRISE_COMPONENTS}")
    message(FATAL_ERROR "component service: found is '${reprise_FOUND}', and it says '${said}'")
  endif()
endfunction()

# ---- the three ways to build against it ----

function(run_programs folder)
  run("${folder}/embed_graph_manager")
  if(EXISTS "${folder}/embed_decode_engine")
    run("${folder}/embed_decode_engine" "${SOURCE}/tests/fixtures/llama-tiny")
  endif()
endfunction()

# configure(<cmake argument> ...): the consumer project, into SCRATCH.
function(configure)
  file(REMOVE_RECURSE "${SCRATCH}")
  run("${CMAKE_COMMAND}" -S "${SOURCE}/tests/consumer" -B "${SCRATCH}" -G "${GENERATOR}"
      "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DEXAMPLES=${SOURCE}/examples"
      -DCMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON ${ARGN})
endfunction()

# compile(<source file> <program>): with the installed package's pkg-config file, as README says.
function(compile source program)
  cmake_path(GET program PARENT_PATH folder)
  file(MAKE_DIRECTORY "${folder}")
  set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
  execute_process(COMMAND "${PKG_CONFIG}" --static --cflags --libs reprise OUTPUT_VARIABLE words
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(words UNIX_COMMAND "${words}")
  separate_arguments(flags UNIX_COMMAND "${FLAGS}")
  run("${CXX}" -std=c++20 ${flags} "${source}" -o "${program}" ${words})
endfunction()

if(STEP STREQUAL "install")
  file(REMOVE_RECURSE "${PREFIX}")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --component development --prefix "${PREFIX}")
  check_files()
  check_texts()
  check_components()
elseif(STEP STREQUAL "seams")
  check_seams()
elseif(STEP STREQUAL "package")
  configure("-DCMAKE_PREFIX_PATH=${PREFIX}")
  run("${CMAKE_COMMAND}" --build "${SCRATCH}")
  run_programs("${SCRATCH}")
elseif(STEP STREQUAL "pkgconfig")
  file(REMOVE_RECURSE "${SCRATCH}")
  foreach(program embed_graph_manager embed_decode_engine)
    compile("${SOURCE}/examples/${program}.cc" "${SCRATCH}/${program}")
  endforeach()
  run_programs("${SCRATCH}")
elseif(STEP STREQUAL "readme")
  file(REMOVE_RECURSE "${SCRATCH}")
  file(READ "${SOURCE}/README.md" readme)
  string(REGEX MATCH "\n```cpp\n.*\n```\n" program "${readme}")
  string(REGEX REPLACE "\n```(cpp\n)?" "\n" program "${program}")
  file(WRITE "${SCRATCH}/program.cc" "${program}")
  compile("${SCRATCH}/program.cc" "${SCRATCH}/program")
  execute_process(COMMAND "${SCRATCH}/program" WORKING_DIRECTORY "${SOURCE}"
                  OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  # What the shipped model goes on with; see its tests.
  if(NOT text MATCHES "^ [ -~]+\n$")
    message(FATAL_ERROR "README's program printed '${text}'; expected a line of text")
  endif()
elseif(STEP STREQUAL "c")
  file(REMOVE_RECURSE "${SCRATCH}")
  set(program "${SOURCE}/tests/capi/c11_program.c")
  set(model "${SOURCE}/tests/fixtures/llama-tiny")
  run("${CMAKE_COMMAND}" -S "${SOURCE}/tests/consumer_c" -B "${SCRATCH}/cmake" -G "${GENERATOR}"
      "-DCMAKE_C_COMPILER=${CC}" "-DPROGRAM=${program}" "-DCMAKE_PREFIX_PATH=${PREFIX}"
      -DCMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON)
  run("${CMAKE_COMMAND}" --build "${SCRATCH}/cmake")
  run("${SCRATCH}/cmake/c11_program" "${model}")
  set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
  execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs reprise-c OUTPUT_VARIABLE words
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(words UNIX_COMMAND "${words}")
  run("${CC}" "${program}" -o "${SCRATCH}/c11_program" ${words})
  set(ENV{LD_LIBRARY_PATH} "${PREFIX}/${LIBDIR}")
  run("${SCRATCH}/c11_program" "${model}")
elseif(STEP STREQUAL "subproject")
  # Not optimised, which takes a third of the time, and several files as one.
  configure("-DREPRISE_SOURCE=${SOURCE}" -DREPRISE_CUDA=OFF -DREPRISE_HIP=OFF -DREPRISE_UNITY=ON)
  run("${CMAKE_COMMAND}" --build "${SCRATCH}" --target embed_graph_manager embed_decode_engine)
  run_programs("${SCRATCH}")
else()
  message(FATAL_ERROR "STEP is '${STEP}'; allowed: install, seams, package, pkgconfig, readme, "
                      "c, subproject")
endif()
