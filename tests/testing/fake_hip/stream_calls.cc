// SPDX-License-Identifier: Apache-2.0
// The fake HIP library: streams, and copies and fills on them.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/testing/fake_hip/fake_hip_library.h"

namespace reprise::testing::fake_hip {

FAKE_HIP_EXPORT int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  FAKE_HIP_CALL(hipStreamCreateWithFlags);
  if (flags != 1) return call.Return(kInvalidValue);  // hipStreamNonBlocking
  State& state = call.state;
  auto made = std::make_shared<FakeHipStream>(
      ThisThread().device,
      FakeHipStream::Faults{.report = [&state] { state.fault = kLaunchFailure; },
                            .reported = [&state] { return state.fault != kSuccess; }});
  *stream = made.get();
  state.streams[*stream] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipStreamDestroy(void* stream) {
  std::shared_ptr<FakeHipStream> last;  // goes without the lock: its thread may want it
  FAKE_HIP_CALL(hipStreamDestroy);
  last = call.Find(stream);
  if (last == nullptr) return call.Return();
  call.state.streams.erase(stream);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipStreamSynchronize(void* stream) {
  FAKE_HIP_CALL(hipStreamSynchronize);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) {
    found->capture->spoilt = true;
    return call.Return(kCaptureUnsupported);
  }
  return call.Return(call.WaitFor({found}));
}

FAKE_HIP_EXPORT int hipStreamQuery(void* stream) {
  FAKE_HIP_CALL(hipStreamQuery);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) {
    found->capture->spoilt = true;
    return call.Return(kCaptureUnsupported);
  }
  const bool idle = found->IsIdle();
  // A fault is reported before the stream goes idle.
  if (call.state.fault != kSuccess) return call.Return(call.state.fault);
  return call.Return(idle ? kSuccess : kNotReady);
}

FAKE_HIP_EXPORT int hipMemcpyAsync(void* dst, const void* src, size_t bytes, int kind,
                                   void* stream) {
  FAKE_HIP_CALL(hipMemcpyAsync);
  if (kind != 1 && kind != 2) return call.Return(kInvalidValue);
  return call.Submit(stream, FakeHipNodeType::kMemcpy,
                     [dst, src, bytes] { std::memcpy(dst, src, bytes); });
}

FAKE_HIP_EXPORT int hipMemsetAsync(void* dst, int value, size_t bytes, void* stream) {
  FAKE_HIP_CALL(hipMemsetAsync);
  return call.Submit(stream, FakeHipNodeType::kMemset,
                     [dst, value, bytes] { std::memset(dst, value, bytes); });
}

}  // namespace reprise::testing::fake_hip
