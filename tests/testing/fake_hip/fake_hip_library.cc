// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_hip/fake_hip_library.h"

#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

namespace reprise::testing::fake_hip {

// Never destroyed: streams that a test leaves behind may outlive every static object.
State& TheState() {
  static State* const state = new State;
  return *state;
}

Thread& ThisThread() {
  static thread_local Thread thread;
  return thread;
}

Call::Call(const char* name) : state(TheState()), lock_(state.mutex) {
  // Looked up without making a string of the name: a launch allocates nothing.
  const auto count = state.calls.find(std::string_view(name));
  if (count == state.calls.end()) {
    state.calls.emplace(name, 1);
  } else {
    ++count->second;
  }
  const auto failure = state.failures.find(std::string_view(name));
  if (failure == state.failures.end()) {
    error_ = state.fault;
  } else {
    error_ = failure->second;
    state.failures.erase(failure);
  }
}

bool Call::ForbiddenInCapture() {
  bool forbidden = false;
  for (auto& [handle, stream] : state.streams) {
    if (stream->capture == nullptr || stream->capture->thread != std::this_thread::get_id())
      continue;
    stream->capture->spoilt = true;
    forbidden = true;
  }
  if (forbidden) error_ = kCaptureUnsupported;
  return forbidden;
}

std::shared_ptr<FakeHipStream> Call::Find(void* stream) {
  const auto it = state.streams.find(stream);
  if (it != state.streams.end()) return it->second;
  error_ = kInvalidHandle;
  return nullptr;
}

int Call::WaitFor(const std::vector<std::shared_ptr<FakeHipStream>>& streams) {
  lock_.unlock();
  for (const auto& stream : streams) stream->Wait();
  lock_.lock();
  return state.fault;
}

int Call::WaitForAll() {
  std::vector<std::shared_ptr<FakeHipStream>> streams;
  for (const auto& [handle, stream] : state.streams) streams.push_back(stream);
  return WaitFor(streams);
}

int Call::Submit(void* stream_handle, FakeHipNodeType type, std::function<void()> run) {
  const auto stream = Find(stream_handle);
  if (stream == nullptr) return Return();
  auto node = std::make_shared<FakeHipNode>();
  node->type = type;
  node->run = std::move(run);
  if (stream->capture != nullptr) {
    if (stream->capture->spoilt) return Return(kCaptureInvalidated);
    stream->capture->nodes.push_back(std::move(node));
  } else {
    stream->Enqueue(std::make_shared<const FakeHipNodes>(FakeHipNodes{std::move(node)}));
  }
  return Return(kSuccess);
}

// --- For tests: fake_hip.h. ---

FAKE_HIP_EXPORT void reprise_fake_hip_reset() {
  State& state = TheState();
  state.streams.clear();
  std::lock_guard<std::mutex> lock(state.mutex);
  for (const auto& [data, bytes] : state.allocations) std::free(data);
  for (const auto& [host, mapping] : state.mapped) Unmap(mapping);
  state.allocations.clear();
  state.mapped.clear();
  state.graphs.clear();
  state.execs.clear();
  state.functions.clear();
  state.modules.clear();
  for (auto& [name, count] : state.calls) count = 0;
  state.failures.clear();
  state.used_bytes = 0;
  state.fault = kSuccess;
  state.machine = {};
}

FAKE_HIP_EXPORT FakeHipMachine* reprise_fake_hip_machine() { return &TheState().machine; }

FAKE_HIP_EXPORT void reprise_fake_hip_counts(FakeHipCounts* counts) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  *counts = {.allocations = static_cast<int>(state.allocations.size()),
             .mapped = static_cast<int>(state.mapped.size()),
             .streams = static_cast<int>(state.streams.size()),
             .graphs = static_cast<int>(state.graphs.size()),
             .execs = static_cast<int>(state.execs.size()),
             .modules = static_cast<int>(state.modules.size())};
}

FAKE_HIP_EXPORT int reprise_fake_hip_calls(const char* call) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  const auto it = state.calls.find(std::string_view(call));
  return it == state.calls.end() ? 0 : it->second;
}

FAKE_HIP_EXPORT void reprise_fake_hip_fail(const char* call, int error) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.failures[call] = error;
}

}  // namespace reprise::testing::fake_hip
