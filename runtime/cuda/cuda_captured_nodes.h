// SPDX-License-Identifier: Apache-2.0
// The nodes of a captured graph and their arguments. Part of the CUDA device. Kernels are asked of
// the driver: the runtime's calls know kernels of its own instance alone, and a graph holds those
// of cuBLAS too.
#ifndef REPRISE_RUNTIME_CUDA_CUDA_CAPTURED_NODES_H_
#define REPRISE_RUNTIME_CUDA_CUDA_CAPTURED_NODES_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/gpu/gpu_vendor.h"

namespace reprise::runtime {

// As GpuVendor's. Errors: Unimplemented where the driver is older than CUDA 12.4; Internal names
// the driver's call and error.
absl::Status ListCudaNodes(cudaGraph_t graph, std::vector<GpuCapturedNode>* nodes);
absl::Status SetCudaNodeArgs(cudaGraphExec_t exec, const GpuCapturedNode& node,
                             std::span<const std::byte> args);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_CUDA_CUDA_CAPTURED_NODES_H_
