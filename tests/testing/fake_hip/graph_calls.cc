// SPDX-License-Identifier: Apache-2.0
// The fake HIP library: capture and graphs.
#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "tests/testing/fake_hip/fake_hip_library.h"

namespace reprise::testing::fake_hip {
namespace {

#if FAKE_HIP_ROCM_5_2
constexpr int kFirstNodeType = 1;
#else
constexpr int kFirstNodeType = 0;
#endif

int TypeNumber(FakeHipNodeType type) {
  switch (type) {
    case FakeHipNodeType::kKernel:
      return kFirstNodeType;
    case FakeHipNodeType::kMemcpy:
      return kFirstNodeType + 1;
    case FakeHipNodeType::kMemset:
      return kFirstNodeType + 2;
    case FakeHipNodeType::kEmpty:
      return kFirstNodeType + 5;
  }
  return -1;
}

}  // namespace

FAKE_HIP_EXPORT int hipStreamIsCapturing(void* stream, int* status) {
  FAKE_HIP_CALL(hipStreamIsCapturing);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  *status = found->capture == nullptr ? 0 : found->capture->spoilt ? 2 : 1;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipStreamBeginCapture(void* stream, int mode) {
  FAKE_HIP_CALL(hipStreamBeginCapture);
  if (mode != 1) return call.Return(kInvalidValue);  // hipStreamCaptureModeThreadLocal
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) return call.Return(kIllegalState);
  found->capture = std::make_unique<FakeHipStream::Capture>();
  found->capture->thread = std::this_thread::get_id();
  return call.Return(kSuccess);
}

// Whatever it returns, the capture is over, but for a thread that may not end it.
FAKE_HIP_EXPORT int hipStreamEndCapture(void* stream, void** graph) {
  Call call("hipStreamEndCapture");
  *graph = nullptr;
  const auto it = call.state.streams.find(stream);
  if (it == call.state.streams.end()) return call.Return(kInvalidHandle);
  FakeHipStream& found = *it->second;
  if (found.capture == nullptr) return call.Return(call.failed() ? call.Return() : kIllegalState);
  if (found.capture->thread != std::this_thread::get_id()) {
    found.capture->spoilt = true;
    return call.Return(kCaptureWrongThread);
  }
  const std::unique_ptr<FakeHipStream::Capture> capture = std::move(found.capture);
  if (call.failed()) return call.Return();
  if (capture->spoilt) return call.Return(kCaptureInvalidated);
  auto made = std::make_unique<Graph>();
  made->nodes = std::move(capture->nodes);
  *graph = made.get();
  call.state.graphs[*graph] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphCreate(void** graph, unsigned flags) {
  FAKE_HIP_CALL(hipGraphCreate);
  if (flags != 0) return call.Return(kInvalidValue);
  auto made = std::make_unique<Graph>();
  *graph = made.get();
  call.state.graphs[*graph] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphAddEmptyNode(void** node, void* graph, void* const* dependencies,
                                         size_t num_dependencies) {
  FAKE_HIP_CALL(hipGraphAddEmptyNode);
  const auto it = call.state.graphs.find(graph);
  if (it == call.state.graphs.end() || (dependencies == nullptr) != (num_dependencies == 0))
    return call.Return(kInvalidValue);
  it->second->nodes.push_back(std::make_shared<FakeHipNode>());
  *node = it->second->nodes.back().get();
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphGetNodes(void* graph, void** nodes, size_t* num_nodes) {
  FAKE_HIP_CALL(hipGraphGetNodes);
  const auto it = call.state.graphs.find(graph);
  if (it == call.state.graphs.end()) return call.Return(kInvalidValue);
  const FakeHipNodes& own = it->second->nodes;
  if (nodes != nullptr) {
    *num_nodes = std::min(*num_nodes, own.size());
    for (size_t i = 0; i < *num_nodes; ++i) nodes[i] = own[i].get();
  } else {
    *num_nodes = own.size();
  }
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphNodeGetType(void* node, int* type) {
  FAKE_HIP_CALL(hipGraphNodeGetType);
  if (node == nullptr) return call.Return(kInvalidValue);
  *type = TypeNumber(static_cast<FakeHipNode*>(node)->type);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphInstantiate(void** exec, void* graph, void** error_node, char* log,
                                        size_t log_bytes) {
  FAKE_HIP_CALL(hipGraphInstantiate);
  const auto it = call.state.graphs.find(graph);
  if (it == call.state.graphs.end() || (log == nullptr) != (log_bytes == 0))
    return call.Return(kInvalidValue);
  if (error_node != nullptr) *error_node = nullptr;
  const size_t bytes = call.state.machine.bytes_per_graph;
  if (bytes > FreeBytes(call.state)) return call.Return(kOutOfMemory);
  auto made = std::make_unique<Exec>();
  made->nodes = std::make_shared<const FakeHipNodes>(it->second->nodes);
  made->bytes = bytes;
  call.state.used_bytes += bytes;
  *exec = made.get();
  call.state.execs[*exec] = std::move(made);
  return call.Return(kSuccess);
}

#if !FAKE_HIP_ROCM_5_2
FAKE_HIP_EXPORT int hipGraphUpload(void* exec, void* stream) {
  FAKE_HIP_CALL(hipGraphUpload);
  if (call.Find(stream) == nullptr) return call.Return();
  return call.Return(call.state.execs.count(exec) == 0 ? kInvalidValue : kSuccess);
}
#endif

FAKE_HIP_EXPORT int hipGraphLaunch(void* exec, void* stream) {
  FAKE_HIP_CALL(hipGraphLaunch);
  const auto it = call.state.execs.find(exec);
  if (it == call.state.execs.end()) return call.Return(kInvalidValue);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) {
    found->capture->spoilt = true;
    return call.Return(kCaptureUnsupported);
  }
  found->Enqueue(it->second->nodes);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphDestroy(void* graph) {
  FAKE_HIP_CALL(hipGraphDestroy);
  return call.Return(call.state.graphs.erase(graph) == 0 ? kInvalidValue : kSuccess);
}

FAKE_HIP_EXPORT int hipGraphExecDestroy(void* exec) {
  FAKE_HIP_CALL(hipGraphExecDestroy);
  const auto it = call.state.execs.find(exec);
  if (it == call.state.execs.end()) return call.Return(kInvalidValue);
  call.state.used_bytes -= it->second->bytes;
  call.state.execs.erase(it);
  return call.Return(kSuccess);
}

}  // namespace reprise::testing::fake_hip
