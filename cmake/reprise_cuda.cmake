# SPDX-License-Identifier: Apache-2.0
# Looks for the CUDA toolkit. enable_language(CUDA) is not used: host code is plain C++ against the runtime API, and kernels
# become fat binaries that are loaded at run time, so a CUDA build starts on a machine without a driver.
# Sets REPRISE_WITH_CUDA to 1 or 0.

set(REPRISE_WITH_CUDA 0)
if(NOT REPRISE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REPRISE_CUDA is \"${REPRISE_CUDA}\"; allowed: AUTO, ON, OFF")
endif()
if(NOT REPRISE_CUDA STREQUAL "OFF")
  find_program(REPRISE_NVCC nvcc PATHS /usr/local/cuda/bin)
  mark_as_advanced(REPRISE_NVCC)
  if(REPRISE_NVCC)
    get_filename_component(REPRISE_NVCC_REAL "${REPRISE_NVCC}" REALPATH)
    get_filename_component(CUDAToolkit_ROOT "${REPRISE_NVCC_REAL}/../.." ABSOLUTE)
    find_package(CUDAToolkit REQUIRED)
    set(REPRISE_WITH_CUDA 1)
  elseif(REPRISE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "REPRISE_CUDA is ON, but there is no nvcc in PATH or in /usr/local/cuda/bin")
  endif()
endif()
if(REPRISE_WITH_CUDA)
  message(STATUS "CUDA: ${REPRISE_NVCC}, ${CUDAToolkit_VERSION}, architectures ${REPRISE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA: not built")
endif()

if(REPRISE_WITH_CUDA)
  enable_language(ASM)
endif()

# reprise_compile_fatbin(<file.cu> <output.fatbin>)
# Device code of one file for all of REPRISE_CUDA_ARCHITECTURES. Rebuilt when a header that it includes changes.
function(reprise_compile_fatbin source fatbin)
  set(gencode "")
  foreach(arch IN LISTS REPRISE_CUDA_ARCHITECTURES)
    list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${source}")
  add_custom_command(
    OUTPUT "${fatbin}"
    DEPFILE "${fatbin}.d"
    DEPENDS "${source}"
    COMMAND "${REPRISE_NVCC}" -fatbin -std=c++20 -O3 --expt-relaxed-constexpr -lineinfo
            -Werror all-warnings -ccbin "${CMAKE_CXX_COMPILER}" "-I${PROJECT_SOURCE_DIR}" ${gencode}
            -MD -MF "${fatbin}.d" -MT "${fatbin}" -o "${fatbin}" "${source}"
    COMMENT "Building CUDA fat binary of ${name}"
    VERBATIM)
endfunction()

# reprise_add_cuda_kernels(<target> [file.cu ...])
# Compiles each file with nvcc, embeds the fat binaries in <target> and defines reprise::kernels::CudaFatbins() over them
# (kernels/cuda_fatbins.h). Built without CUDA the function is defined too, and empty.
function(reprise_add_cuda_kernels target)
  set(REPRISE_FATBIN_DECLARATIONS "")
  set(REPRISE_FATBIN_ENTRIES "")
  set(REPRISE_FATBIN_INCBINS "")
  set(fatbins "")
  if(REPRISE_WITH_CUDA)
    foreach(file IN LISTS ARGN)
      string(MAKE_C_IDENTIFIER "${file}" symbol)
      string(REGEX REPLACE "_cu$" "" symbol "${symbol}")
      set(symbol reprise_fatbin_${symbol})
      set(fatbin "${CMAKE_CURRENT_BINARY_DIR}/fatbins/${symbol}.fatbin")
      reprise_compile_fatbin("${CMAKE_CURRENT_SOURCE_DIR}/${file}" "${fatbin}")
      list(APPEND fatbins "${fatbin}")
      string(APPEND REPRISE_FATBIN_DECLARATIONS
             "extern const std::byte ${symbol}[];\nextern const std::byte ${symbol}_end[];\n")
      string(APPEND REPRISE_FATBIN_ENTRIES "      {${symbol}, ${symbol}_end},\n")
      string(APPEND REPRISE_FATBIN_INCBINS "FATBIN(${symbol}, \"${fatbin}\")\n")
    endforeach()
  endif()
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/fatbins")
  set(table "${CMAKE_CURRENT_BINARY_DIR}/fatbins/cuda_fatbins.cc")
  set(template_dir "${PROJECT_SOURCE_DIR}/cmake")
  if(fatbins)
    set(data "${CMAKE_CURRENT_BINARY_DIR}/fatbins/cuda_fatbins_data.S")
    configure_file("${template_dir}/cuda_fatbins_data.S.in" "${data}" @ONLY)
    set_source_files_properties("${data}" PROPERTIES OBJECT_DEPENDS "${fatbins}")
    target_sources(${target} PRIVATE "${data}")
    configure_file("${template_dir}/cuda_fatbins.cc.in" "${table}" @ONLY)
  else()
    configure_file("${template_dir}/cuda_fatbins_none.cc.in" "${table}" @ONLY)
  endif()
  target_sources(${target} PRIVATE "${table}")
endfunction()
