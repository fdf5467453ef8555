// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cuda_captured_nodes.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
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
  PFN_cuGraphGetEdges_v12030 graph_edges = nullptr;
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
  REPRISE_RETURN_IF_ERROR(Find("cuGraphGetEdges", 12030, &driver.graph_edges));
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

CapturedNode DescribeKernel(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& params) {
  CapturedNode node = {.grid_x = params.gridDimX,
                       .grid_y = params.gridDimY,
                       .grid_z = params.gridDimZ,
                       .block = params.blockDimX * params.blockDimY * params.blockDimZ,
                       .shared_bytes = params.sharedMemBytes};
  const char* name = nullptr;
  const CUresult named = params.func != nullptr ? driver.function_name(&name, params.func)
                                                : driver.kernel_name(&name, params.kern);
  if (named == CUDA_SUCCESS && name != nullptr) node.name = name;
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

// Forgets the error, which an embedder must not find.
absl::Status Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return absl::InternalError(absl::StrCat(call, ": ", cudaGetErrorName(error)));
}

void* At(const cudaPitchedPtr& memory, const cudaPos& position) {
  return static_cast<std::byte*>(memory.ptr) +
         (position.z * memory.ysize + position.y) * memory.pitch + position.x;
}

// Of more than one line it cannot be changed in an executable graph, and of an array there is no
// address.
bool IsLine(const cudaMemcpy3DParms& params) {
  return params.srcArray == nullptr && params.dstArray == nullptr && params.extent.height <= 1 &&
         params.extent.depth <= 1;
}

CapturedNode DescribeCopy(cudaGraphNode_t raw) {
  CapturedNode node = {.kind = CapturedNode::Kind::kCopy, .name = "copy"};
  cudaMemcpy3DParms params = {};
  const absl::Status told =
      Check(cudaGraphMemcpyNodeGetParams(raw, &params), "cudaGraphMemcpyNodeGetParams");
  node.opaque = !told.ok() || !IsLine(params);
  if (node.opaque) return node;
  node.args = ArgsBytes(CopyNodeArgs{.dst = At(params.dstPtr, params.dstPos),
                                     .src = At(params.srcPtr, params.srcPos)});
  return node;
}

CapturedNode DescribeFill(cudaGraphNode_t raw) {
  CapturedNode node = {.kind = CapturedNode::Kind::kFill, .name = "fill"};
  cudaMemsetParams params = {};
  const absl::Status told =
      Check(cudaGraphMemsetNodeGetParams(raw, &params), "cudaGraphMemsetNodeGetParams");
  node.opaque = !told.ok() || params.height > 1;
  if (!node.opaque) node.args = ArgsBytes(FillNodeArgs{.dst = params.dst});
  return node;
}

CapturedNode DescribeOther(cudaGraphNodeType type) {
  CapturedNode node = {.kind = CapturedNode::Kind::kOther};
  switch (type) {
    case cudaGraphNodeTypeEmpty:
      node.name = "empty";
      return node;
    case cudaGraphNodeTypeWaitEvent:
      node.name = "event wait";
      return node;
    case cudaGraphNodeTypeEventRecord:
      node.name = "event record";
      return node;
    case cudaGraphNodeTypeHost:
      node.name = "host function";
      break;
    case cudaGraphNodeTypeGraph:
      node.name = "child graph";
      break;
    default:
      node.name = absl::StrCat("node of type ", static_cast<int>(type));
      break;
  }
  node.opaque = true;
  return node;
}

absl::StatusOr<CapturedNode> Describe(const Driver& driver, cudaGraphNode_t raw) {
  cudaGraphNodeType type;
  REPRISE_RETURN_IF_ERROR(Check(cudaGraphNodeGetType(raw, &type), "cudaGraphNodeGetType"));
  if (type == cudaGraphNodeTypeMemcpy) return DescribeCopy(raw);
  if (type == cudaGraphNodeTypeMemset) return DescribeFill(raw);
  if (type != cudaGraphNodeTypeKernel) return DescribeOther(type);
  CUDA_KERNEL_NODE_PARAMS params = {};
  REPRISE_RETURN_IF_ERROR(
      ToStatus(driver, driver.node_get_params(raw, &params), "cuGraphKernelNodeGetParams"));
  return DescribeKernel(driver, params);
}

// Sets CapturedNode::waits of all.
absl::Status FindEdges(const Driver& driver, cudaGraph_t graph,
                       std::vector<GpuCapturedNode>& nodes) {
  size_t count = 0;
  REPRISE_RETURN_IF_ERROR(ToStatus(
      driver, driver.graph_edges(graph, nullptr, nullptr, nullptr, &count), "cuGraphGetEdges"));
  if (count == 0) return absl::OkStatus();
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  REPRISE_RETURN_IF_ERROR(
      ToStatus(driver, driver.graph_edges(graph, from.data(), to.data(), data.data(), &count),
               "cuGraphGetEdges"));
  absl::flat_hash_map<const void*, int> places;
  for (const GpuCapturedNode& node : nodes) places.emplace(node.raw, node.node.index);
  for (size_t i = 0; i < count; ++i) {
    const auto waiting = places.find(to[i]), waited_for = places.find(from[i]);
    if (waiting == places.end() || waited_for == places.end())
      return absl::InternalError("cuGraphGetEdges: an edge of a node that the graph has not");
    nodes[static_cast<size_t>(waiting->second)].node.waits.push_back(
        {.node = waited_for->second,
         .early = data[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC});
  }
  for (GpuCapturedNode& node : nodes)
    std::sort(node.node.waits.begin(), node.node.waits.end(),
              [](const auto& a, const auto& b) { return a.node < b.node; });
  return absl::OkStatus();
}

absl::Status SetKernelArgs(const Driver& driver, cudaGraphExec_t exec, cudaGraphNode_t raw,
                           std::span<const std::byte> args) {
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

absl::Status SetCopyArgs(cudaGraphExec_t exec, cudaGraphNode_t raw, const CopyNodeArgs& args) {
  cudaMemcpy3DParms params = {};
  REPRISE_RETURN_IF_ERROR(
      Check(cudaGraphMemcpyNodeGetParams(raw, &params), "cudaGraphMemcpyNodeGetParams"));
  params.dstPtr.ptr = args.dst;
  params.dstPos = {};
  params.srcPtr.ptr = const_cast<void*>(args.src);
  params.srcPos = {};
  return Check(cudaGraphExecMemcpyNodeSetParams(exec, raw, &params),
               "cudaGraphExecMemcpyNodeSetParams");
}

absl::Status SetFillArgs(cudaGraphExec_t exec, cudaGraphNode_t raw, const FillNodeArgs& args) {
  cudaMemsetParams params = {};
  REPRISE_RETURN_IF_ERROR(
      Check(cudaGraphMemsetNodeGetParams(raw, &params), "cudaGraphMemsetNodeGetParams"));
  params.dst = args.dst;
  return Check(cudaGraphExecMemsetNodeSetParams(exec, raw, &params),
               "cudaGraphExecMemsetNodeSetParams");
}

}  // namespace

absl::Status ListCudaNodes(cudaGraph_t graph, std::vector<GpuCapturedNode>* nodes) {
  REPRISE_RETURN_IF_ERROR(TheDriver().status());
  size_t count = 0;
  REPRISE_RETURN_IF_ERROR(Check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes"));
  std::vector<cudaGraphNode_t> all(count);
  if (count > 0) {
    REPRISE_RETURN_IF_ERROR(
        Check(cudaGraphGetNodes(graph, all.data(), &count), "cudaGraphGetNodes"));
  }
  for (size_t i = 0; i < count; ++i) {
    REPRISE_ASSIGN_OR_RETURN(CapturedNode node, Describe(*TheDriver(), all[i]));
    node.index = static_cast<int>(i);
    nodes->push_back({.node = std::move(node), .raw = all[i]});
  }
  return FindEdges(*TheDriver(), graph, *nodes);
}

absl::Status SetCudaNodeArgs(cudaGraphExec_t exec, const GpuCapturedNode& node,
                             std::span<const std::byte> args) {
  REPRISE_RETURN_IF_ERROR(TheDriver().status());
  const auto raw = static_cast<cudaGraphNode_t>(node.raw);
  switch (node.node.kind) {
    case CapturedNode::Kind::kKernel:
      return SetKernelArgs(*TheDriver(), exec, raw, args);
    case CapturedNode::Kind::kCopy:
      return SetCopyArgs(exec, raw, ArgsFromBytes<CopyNodeArgs>(args));
    case CapturedNode::Kind::kFill:
      return SetFillArgs(exec, raw, ArgsFromBytes<FillNodeArgs>(args));
    case CapturedNode::Kind::kOther:
      break;
  }
  return absl::InternalError(absl::StrCat("node '", node.node.name, "' has no arguments"));
}

}  // namespace reprise::runtime
