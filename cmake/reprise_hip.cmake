# SPDX-License-Identifier: Apache-2.0
# Looks for a clang that compiles for AMD GPUs. enable_language(HIP) is not used: it wants an
# installed ROCm, and we need a compiler, a linker and the vendor's math library as bitcode, no
# headers and no runtime library (that one is opened at run time).
# Sets REPRISE_WITH_HIP to 1 or 0.

set(REPRISE_WITH_HIP 0)
if(NOT REPRISE_HIP MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REPRISE_HIP is \"${REPRISE_HIP}\"; allowed: AUTO, ON, OFF")
endif()
if(NOT REPRISE_HIP STREQUAL "OFF")
  find_program(REPRISE_HIP_CLANG NAMES clang++-19)
  find_program(REPRISE_HIP_LLD NAMES ld.lld-19)
  find_program(REPRISE_HIP_BUNDLER NAMES clang-offload-bundler-19 PATHS /usr/lib/llvm-19/bin)
  find_file(REPRISE_HIP_OCML
            NAMES ocml.bc
            PATHS /usr/lib/x86_64-linux-gnu/amdgcn/bitcode /opt/rocm/amdgcn/bitcode
            NO_DEFAULT_PATH)
  mark_as_advanced(REPRISE_HIP_CLANG REPRISE_HIP_LLD REPRISE_HIP_BUNDLER REPRISE_HIP_OCML)
  if(REPRISE_HIP_CLANG AND REPRISE_HIP_LLD AND REPRISE_HIP_BUNDLER AND REPRISE_HIP_OCML)
    set(REPRISE_WITH_HIP 1)
  elseif(REPRISE_HIP STREQUAL "ON")
    message(FATAL_ERROR "REPRISE_HIP is ON, but not all of clang++-19, ld.lld-19, "
                        "clang-offload-bundler-19 and rocm-device-libs are here")
  endif()
endif()
if(REPRISE_WITH_HIP)
  message(STATUS "HIP: ${REPRISE_HIP_CLANG}, architectures ${REPRISE_HIP_ARCHITECTURES}")
else()
  message(STATUS "HIP: not built")
endif()

# Debian's device libraries (5.2.3) are older than two of our targets: their one file per target, a
# constant, is made here.
if(REPRISE_WITH_HIP)
  get_filename_component(bitcode_dir "${REPRISE_HIP_OCML}" DIRECTORY)
  set(REPRISE_HIP_BITCODE "${PROJECT_BINARY_DIR}/hip_bitcode")
  file(MAKE_DIRECTORY "${REPRISE_HIP_BITCODE}")
  file(GLOB bitcode_files "${bitcode_dir}/*.bc")
  foreach(file IN LISTS bitcode_files)
    get_filename_component(name "${file}" NAME)
    file(CREATE_LINK "${file}" "${REPRISE_HIP_BITCODE}/${name}" SYMBOLIC)
  endforeach()
  foreach(isa IN ITEMS 942=9402 1100=11000)
    string(REPLACE "=" ";" isa "${isa}")
    list(GET isa 0 name)
    list(GET isa 1 version)
    set(output "${REPRISE_HIP_BITCODE}/oclc_isa_version_${name}.bc")
    if(NOT EXISTS "${output}")
      file(WRITE "${REPRISE_HIP_BITCODE}/isa_${name}.cl"
           "__attribute__((visibility(\"protected\"))) "
           "const __constant int __oclc_ISA_version = ${version};\n")
      execute_process(
        COMMAND "${REPRISE_HIP_CLANG}" -x cl -cl-std=CL2.0 -target amdgcn-amd-amdhsa -nogpulib
                -O1 -emit-llvm -c "${REPRISE_HIP_BITCODE}/isa_${name}.cl" -o "${output}"
        COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endforeach()
endif()

# reprise_compile_hip(<file> <output>)
# Device code of one file for all of REPRISE_HIP_ARCHITECTURES, as one bundle. Rebuilt when a header
# that it includes changes. Each architecture is compiled by itself: at the same time, and so that
# ccache can keep it. The folder of device libraries is given relative to this one, for ccache too.
function(reprise_compile_hip source output)
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${source}")
  cmake_path(RELATIVE_PATH output BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  cmake_path(RELATIVE_PATH REPRISE_HIP_BITCODE BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
             OUTPUT_VARIABLE bitcode)
  set(targets "host-x86_64-unknown-linux")
  set(inputs -input=/dev/null)
  set(objects "")
  foreach(arch IN LISTS REPRISE_HIP_ARCHITECTURES)
    set(object "${output}.${arch}")
    add_custom_command(
      OUTPUT "${object}"
      DEPFILE "${object}.d"
      DEPENDS "${source}"
      COMMAND ${REPRISE_COMPILER_LAUNCHER} "${REPRISE_HIP_CLANG}" -x hip -c -std=c++20 -O3
              -nogpuinc --rocm-path=/usr "--rocm-device-lib-path=${bitcode}" --offload-device-only
              --no-gpu-bundle-output --offload-arch=${arch} -Wall -Wextra -Werror
              "-I${PROJECT_SOURCE_DIR}"
              -MD -MF "${object}.d" -MT "${object}" -o "${object}" "${source}"
      COMMENT "Building HIP code object of ${name} for ${arch}"
      VERBATIM)
    string(APPEND targets ",hipv4-amdgcn-amd-amdhsa--${arch}")
    list(APPEND inputs "-input=${object}")
    list(APPEND objects "${object}")
  endforeach()
  add_custom_command(
    OUTPUT "${output}"
    DEPENDS ${objects}
    COMMAND "${REPRISE_HIP_BUNDLER}" -type=o -bundle-align=4096 "-targets=${targets}" ${inputs}
            "-output=${output}"
    COMMENT "Bundling HIP code objects of ${name}"
    VERBATIM)
endfunction()
