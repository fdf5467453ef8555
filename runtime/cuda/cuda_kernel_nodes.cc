// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cuda_kernel_nodes.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <algorithm>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

// The driver's calls, found through the runtime: libcuda is not linked, since a program that does
// would not start without a driver.
struct Driver {
  PFN_cuGetErrorName_v6000 get_error_name = nullptr;
  PFN_cuGraphKernelNodeGetParams_v12000 node_get_params = nullptr;
  PFN_cuGraphExecKernelNodeSetParams_v12000 exec_set_params = nullptr;
  PFN_cuFuncGetParamInfo_v12040 function_param = nullptr;
  PFN_cuKernelGetParamInfo_v12040 kernel_param = nullptr;
  PFN_cuFuncGetName_v12030 function_name = nullptr;
  PFN_cuKernelGetName_v12030 kernel_name = nullptr;
};

template <typename Function>
absl::Status Find(const char* name, unsigned version, Function* function) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // an embedder must not find one that is reported here
    return absl::UnimplementedError(
        absl::StrCat("the CUDA driver has no ", name, " of version ", version));
  }
  *function = reinterpret_cast<Function>(entry);
  return absl::OkStatus();
}

absl::StatusOr<Driver> FindDriver() {
  Driver driver;
  REPRISE_RETURN_IF_ERROR(Find("cuGetErrorName", 6000, &driver.get_error_name));
  REPRISE_RETURN_IF_ERROR(Find("cuGraphKernelNodeGetParams", 12000, &driver.node_get_params));
  REPRISE_RETURN_IF_ERROR(Find("cuGraphExecKernelNodeSetParams", 12000, &driver.exec_set_params));
  REPRISE_RETURN_IF_ERROR(Find("cuFuncGetParamInfo", 12040, &driver.function_param));
  REPRISE_RETURN_IF_ERROR(Find("cuKernelGetParamInfo", 12040, &driver.kernel_param));
  REPRISE_RETURN_IF_ERROR(Find("cuFuncGetName", 12030, &driver.function_name));
  REPRISE_RETURN_IF_ERROR(Find("cuKernelGetName", 12030, &driver.kernel_name));
  return driver;
}

const absl::StatusOr<Driver>& TheDriver() {
  static const absl::StatusOr<Driver> driver = FindDriver();
  return driver;
}

absl::Status ToStatus(const Driver& driver, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  if (driver.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown";
  return absl::InternalError(absl::StrCat(call, ": ", name, " (", static_cast<int>(result), ")"));
}

// Where parameter number `i` lies behind the first one, and its size. False behind the last one.
// The driver counts from a place in constant memory, behind which the first one begins where it has
// to be aligned.
bool FindParam(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& params, size_t i,
               size_t* offset, size_t* bytes) {
  const auto find = [&](size_t number, size_t* at) {
    const CUresult result = params.func != nullptr
                                ? driver.function_param(params.func, number, at, bytes)
                                : driver.kernel_param(params.kern, number, at, bytes);
    return result == CUDA_SUCCESS;
  };
  size_t first = 0;
  if (!find(0, &first) || !find(i, offset)) return false;
  *offset -= first;
  return true;
}

KernelNode Describe(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& params, int index) {
  KernelNode node = {.index = index,
                     .grid_x = params.gridDimX,
                     .grid_y = params.gridDimY,
                     .grid_z = params.gridDimZ,
                     .block = params.blockDimX * params.blockDimY * params.blockDimZ,
                     .shared_bytes = params.sharedMemBytes};
  const char* name = nullptr;
  const CUresult named = params.func != nullptr ? driver.function_name(&name, params.func)
                                                : driver.kernel_name(&name, params.kern);
  if (named == CUDA_SUCCESS && name != nullptr) node.kernel = name;
  size_t offset = 0;
  size_t bytes = 0;
  for (size_t i = 0; FindParam(driver, params, i, &offset, &bytes); ++i) {
    // Given as one buffer whose layout is the caller's.
    node.opaque = params.kernelParams == nullptr;
    if (node.opaque) break;
    node.args.resize(std::max(node.args.size(), offset + bytes));
    std::memcpy(node.args.data() + offset, params.kernelParams[i], bytes);
  }
  return node;
}

}  // namespace

absl::Status ListCudaKernelNodes(cudaGraph_t graph, std::vector<GpuKernelNode>* nodes) {
  REPRISE_RETURN_IF_ERROR(TheDriver().status());
  const Driver& driver = *TheDriver();
  const auto check = [](cudaError_t error, const char* call) {
    if (error == cudaSuccess) return absl::OkStatus();
    cudaGetLastError();
    return absl::InternalError(absl::StrCat(call, ": ", cudaGetErrorName(error)));
  };
  size_t count = 0;
  REPRISE_RETURN_IF_ERROR(check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes"));
  std::vector<cudaGraphNode_t> all(count);
  if (count > 0) {
    REPRISE_RETURN_IF_ERROR(
        check(cudaGraphGetNodes(graph, all.data(), &count), "cudaGraphGetNodes"));
  }
  for (size_t i = 0; i < count; ++i) {
    cudaGraphNodeType type;
    REPRISE_RETURN_IF_ERROR(check(cudaGraphNodeGetType(all[i], &type), "cudaGraphNodeGetType"));
    if (type != cudaGraphNodeTypeKernel) continue;
    CUDA_KERNEL_NODE_PARAMS params = {};
    REPRISE_RETURN_IF_ERROR(
        ToStatus(driver, driver.node_get_params(all[i], &params), "cuGraphKernelNodeGetParams"));
    nodes->push_back({.node = Describe(driver, params, static_cast<int>(i)), .raw = all[i]});
  }
  return absl::OkStatus();
}

absl::Status SetCudaKernelArgs(cudaGraphExec_t exec, const GpuKernelNode& node,
                               std::span<const std::byte> args) {
  REPRISE_RETURN_IF_ERROR(TheDriver().status());
  const Driver& driver = *TheDriver();
  const auto raw = static_cast<cudaGraphNode_t>(node.raw);
  CUDA_KERNEL_NODE_PARAMS params = {};
  REPRISE_RETURN_IF_ERROR(
      ToStatus(driver, driver.node_get_params(raw, &params), "cuGraphKernelNodeGetParams"));
  std::vector<void*> pointers;
  size_t offset = 0;
  size_t bytes = 0;
  for (size_t i = 0; FindParam(driver, params, i, &offset, &bytes); ++i)
    pointers.push_back(const_cast<std::byte*>(args.data()) + offset);
  params.kernelParams = pointers.data();
  params.extra = nullptr;
  return ToStatus(driver, driver.exec_set_params(exec, raw, &params),
                  "cuGraphExecKernelNodeSetParams");
}

}  // namespace reprise::runtime
