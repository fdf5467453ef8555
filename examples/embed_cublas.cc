// SPDX-License-Identifier: Apache-2.0
// Embedding the graph manager in a CUDA program that has a context, a stream and a library of its
// own: a chain of two products by cuBLAS, captured in the background while others are replayed,
// compared with its eager run bit for bit, audited, and changed in place when its output moves.
// Needs a GPU; without one it says so.
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reprise/graphs/graph_manager.h"
#include "reprise/runtime/device.h"
#include "reprise/runtime/memory/buffer.h"
#include "reprise/runtime/status_macros.h"

namespace {

using reprise::graphs::Bucket;
using reprise::graphs::BucketReport;
using reprise::graphs::CaptureMode;
using reprise::graphs::GraphManager;
using reprise::graphs::GraphManagerOptions;
using reprise::runtime::Device;
using reprise::runtime::DeviceBuffer;
using reprise::runtime::DeviceKind;
using reprise::runtime::Stream;

constexpr int kHidden = 64;
constexpr int kMaxRows = 32;
constexpr size_t kWeights = size_t{kHidden} * kHidden;
constexpr size_t kElements = size_t{kHidden} * kMaxRows;
constexpr size_t kCublasBytes = size_t{32} << 20;  // what cuBLAS recommends for sm_90

absl::Status Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(std::string(call) + ": " + cudaGetErrorString(error));
}

absl::Status Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(std::string(call) + ": error " + std::to_string(result));
}

absl::Status Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(std::string(call) + ": " + cublasGetStatusString(status));
}

// A call of the driver, by way of the runtime: a program that links libcuda does not start where
// there is no driver.
template <typename Function>
absl::StatusOr<Function> DriverCall(const char* name, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  REPRISE_RETURN_IF_ERROR(
      Check(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found),
            "cudaGetDriverEntryPointByVersion"));
  if (found != cudaDriverEntryPointSuccess)
    return absl::UnimplementedError(std::string("the driver has no ") + name);
  return reinterpret_cast<Function>(entry);
}

// What the program has before Reprise comes in. Freed in the end by the process.
struct Program {
  CUcontext context = nullptr;
  std::function<absl::Status()> make_current;
  cudaStream_t stream = nullptr;
  cublasHandle_t cublas = nullptr;
};

absl::StatusOr<Program> CreateProgram() {
  Program program;
  REPRISE_RETURN_IF_ERROR(Check(cudaFree(nullptr), "cudaFree"));  // starts the driver
  REPRISE_ASSIGN_OR_RETURN(
      const auto create,
      (DriverCall<CUresult (*)(CUcontext*, CUctxCreateParams*, unsigned, CUdevice)>("cuCtxCreate",
                                                                                    12050)));
  REPRISE_ASSIGN_OR_RETURN(const auto set_current,
                           DriverCall<CUresult (*)(CUcontext)>("cuCtxSetCurrent", 12000));
  REPRISE_RETURN_IF_ERROR(Check(create(&program.context, nullptr, 0, 0), "cuCtxCreate"));
  program.make_current = [set_current, context = program.context] {
    return Check(set_current(context), "cuCtxSetCurrent");
  };
  REPRISE_RETURN_IF_ERROR(
      Check(cudaStreamCreateWithFlags(&program.stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  REPRISE_RETURN_IF_ERROR(Check(cublasCreate(&program.cublas), "cublasCreate"));
  return program;
}

// y = w * (w * x). Columns are rows of the batch: [kHidden, rows] in cuBLAS's order.
struct Chain {
  cublasHandle_t cublas;
  const float* w;
  const float* x;
  float* between;
  float* y;

  absl::Status Enqueue(Stream& stream, const Bucket& bucket) const {
    REPRISE_RETURN_IF_ERROR(
        Check(cublasSetStream(cublas, static_cast<cudaStream_t>(stream.native_handle())),
              "cublasSetStream"));
    // After the stream, which takes the workspace away. Without one cuBLAS allocates.
    REPRISE_RETURN_IF_ERROR(
        Check(cublasSetWorkspace(cublas, bucket.workspace, bucket.workspace_bytes),
              "cublasSetWorkspace"));
    REPRISE_RETURN_IF_ERROR(Product(x, between, bucket.capacity));
    return Product(between, y, bucket.capacity);
  }
  absl::Status Product(const float* in, float* out, int64_t rows) const {
    const float one = 1;
    const float zero = 0;
    return Check(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, kHidden, static_cast<int>(rows),
                             kHidden, &one, w, kHidden, in, kHidden, &zero, out, kHidden),
                 "cublasSgemm");
  }
};

// x counts, and w moves every element of a row one place on, so that y is known exactly.
absl::Status FillIn(Stream& stream, float* w, float* x) {
  std::vector<float> weights(kWeights);
  std::vector<float> rows(kElements);
  for (size_t i = 0; i < kHidden; ++i) weights[i * kHidden + (i + 1) % kHidden] = 1;
  for (size_t i = 0; i < kElements; ++i) rows[i] = static_cast<float>(i);
  REPRISE_RETURN_IF_ERROR(stream.CopyToDevice(w, weights.data(), kWeights * sizeof(float)));
  REPRISE_RETURN_IF_ERROR(stream.CopyToDevice(x, rows.data(), kElements * sizeof(float)));
  return stream.Synchronize();
}

absl::Status ReplayAndCheck(GraphManager& graphs, Stream& stream, float* y, int rows) {
  std::vector<float> result(kElements);
  REPRISE_RETURN_IF_ERROR(stream.Fill(y, 0, kElements * sizeof(float)));
  REPRISE_ASSIGN_OR_RETURN(const auto report, graphs.Replay(rows));
  REPRISE_RETURN_IF_ERROR(stream.CopyToHost(result.data(), y, kElements * sizeof(float)));
  REPRISE_RETURN_IF_ERROR(stream.Synchronize());
  for (size_t i = 0; i < static_cast<size_t>(rows) * kHidden; ++i) {
    const size_t from = i / kHidden * kHidden + (i + kHidden - 2) % kHidden;
    if (result[i] == static_cast<float>(from)) continue;
    return absl::InternalError("element " + std::to_string(i) + " is " + std::to_string(result[i]));
  }
  std::printf("%d rows: replayed %s\n", rows, std::string(report.graph).c_str());
  return absl::OkStatus();
}

void Print(const std::vector<BucketReport>& reports) {
  for (const BucketReport& report : reports) {
    std::printf("%s: %d kernels, captured in %.1f ms, %zu bytes\n", report.bucket.name.c_str(),
                report.num_kernel_nodes, static_cast<double>(report.capture_ns) / 1e6,
                report.graph_bytes);
  }
}

absl::Status Run() {
  // First of all, so that a machine without a GPU gets Reprise's own words for it.
  REPRISE_RETURN_IF_ERROR(Device::Create({.kind = DeviceKind::kCuda}).status());
  REPRISE_ASSIGN_OR_RETURN(const Program program, CreateProgram());
  REPRISE_ASSIGN_OR_RETURN(const auto device, Device::Create({.kind = DeviceKind::kCuda}));
  REPRISE_ASSIGN_OR_RETURN(const auto stream, device->WrapStream(program.stream));
  constexpr size_t kBytes = kElements * sizeof(float);
  REPRISE_ASSIGN_OR_RETURN(const auto w, DeviceBuffer::Create(*device, kWeights * sizeof(float)));
  REPRISE_ASSIGN_OR_RETURN(const auto x, DeviceBuffer::Create(*device, kBytes));
  REPRISE_ASSIGN_OR_RETURN(const auto between, DeviceBuffer::Create(*device, kBytes));
  REPRISE_ASSIGN_OR_RETURN(const auto y, DeviceBuffer::Create(*device, kBytes));
  REPRISE_ASSIGN_OR_RETURN(const auto other_y, DeviceBuffer::Create(*device, kBytes));
  REPRISE_RETURN_IF_ERROR(FillIn(*stream, w.as<float>(), x.as<float>()));

  Chain chain = {program.cublas, w.as<float>(), x.as<float>(), between.as<float>(), y.as<float>()};
  GraphManagerOptions options;
  options.buckets = {1, 8, kMaxRows};
  options.name_prefix = "chain";
  options.capture = CaptureMode::kBackground;
  options.on_capture_thread = program.make_current;
  options.device = device.get();
  options.workspace_bytes = [](const Bucket&) { return kCublasBytes; };
  options.buffers = {{"w", w.data(), w.bytes()},
                     {"x", x.data(), kBytes},
                     {"between", between.data(), kBytes},
                     {"y", y.data(), kBytes}};
  REPRISE_ASSIGN_OR_RETURN(
      const auto graphs,
      GraphManager::Create(*stream, options, [&](Stream& s, const Bucket& bucket) {
        return chain.Enqueue(s, bucket);
      }));
  for (const int rows : {kMaxRows, 3, 1}) {
    REPRISE_RETURN_IF_ERROR(ReplayAndCheck(*graphs, *stream, chain.y, rows));
    REPRISE_RETURN_IF_ERROR(graphs->Verify({.rows = rows}, options.buffers).status());
  }
  Print(graphs->Report());
  REPRISE_ASSIGN_OR_RETURN(const auto audit, graphs->Audit({.rows = kMaxRows}));
  std::printf("%s: %d pointers, %zu of them in no buffer, %d nodes untold\n",
              std::string(audit.graph).c_str(), audit.num_pointers, audit.foreign.size(),
              audit.num_untold);

  chain.y = other_y.as<float>();
  REPRISE_ASSIGN_OR_RETURN(const auto moved, graphs->MoveBuffer("y", chain.y));
  std::printf("y moved: %d nodes changed, %llu ns each; %d graphs captured again\n",
              moved.num_nodes, static_cast<unsigned long long>(moved.ns_per_node()),
              moved.num_recaptured);
  return ReplayAndCheck(*graphs, *stream, chain.y, 3);
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "embed_cublas: %s\n", status.ToString().c_str());
  return 1;
}
