# SPDX-License-Identifier: Apache-2.0
# Looks for the CUDA toolkit. enable_language(CUDA) is not used: host code is plain C++ against the
# runtime API, and kernels become fat binaries that are loaded at run time, so a CUDA build starts
# on a machine without a driver.
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
    message(FATAL_ERROR
            "REPRISE_CUDA is ON, but there is no nvcc in PATH or in /usr/local/cuda/bin")
  endif()
endif()
if(REPRISE_WITH_CUDA)
  message(STATUS "CUDA: ${REPRISE_NVCC}, ${CUDAToolkit_VERSION}, "
                 "architectures ${REPRISE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA: not built")
endif()

# reprise_compile_cuda(<file> <output.fatbin>)
# Device code of one file for all of REPRISE_CUDA_ARCHITECTURES. Rebuilt when a header that it
# includes changes. ccache keeps objects alone, so an object is compiled, and the fat binary in it
# taken out. CCACHE_NOHASHDIR: with -lineinfo the folder would count, which no other flag maps.
function(reprise_compile_cuda source fatbin)
  set(gencode "")
  foreach(arch IN LISTS REPRISE_CUDA_ARCHITECTURES)
    list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${source}")
  cmake_path(RELATIVE_PATH fatbin BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  add_custom_command(
    OUTPUT "${fatbin}"
    BYPRODUCTS "${fatbin}.o"
    DEPFILE "${fatbin}.d"
    DEPENDS "${source}" "${PROJECT_SOURCE_DIR}/cmake/compile_cuda.cmake"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${fatbin}.o"
            -P "${PROJECT_SOURCE_DIR}/cmake/compile_cuda.cmake" --
            "${CMAKE_COMMAND}" -E env CCACHE_NOHASHDIR=1 ${REPRISE_COMPILER_LAUNCHER}
            "${REPRISE_NVCC}" -x cu -c -std=c++20 -O3 --expt-relaxed-constexpr -lineinfo
            --compress-mode=none -Werror all-warnings -ccbin "${CMAKE_CXX_COMPILER}"
            "-I${PROJECT_SOURCE_DIR}" ${gencode}
            -MD -MF "${fatbin}.d" -MT "${fatbin}" -o "${fatbin}.o" "${source}"
    COMMAND "${CMAKE_OBJCOPY}" -O binary --only-section=.nv_fatbin "${fatbin}.o" "${fatbin}"
    COMMENT "Building CUDA fat binary of ${name}"
    VERBATIM)
endfunction()
