// SPDX-License-Identifier: Apache-2.0
// What tests of devices, streams and capture set up: a device with the probe kernels and a cell to
// see their effect in, and a gate that holds a stream up.
#ifndef REPRISE_TESTS_RUNTIME_PROBE_BENCH_H_
#define REPRISE_TESTS_RUNTIME_PROBE_BENCH_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {

// A flag that ProbeWait waits for; set at the latest when the test is left, so that no stream
// hangs.
class Gate {
 public:
  explicit Gate(Device& device) : buffer_(*MappedBuffer::Create(device, sizeof(uint32_t))) {}
  ~Gate() { Open(); }
  void Open() {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(buffer_.host()))
        .store(1, std::memory_order_seq_cst);
  }
  testing::ProbeWaitArgs args() const {
    return {reinterpret_cast<const uint32_t*>(buffer_.device())};
  }

 private:
  MappedBuffer buffer_;
};

// A device with the probe kernels, a stream and a 64-bit cell that starts at 1.
struct Bench {
  explicit Bench(Device& device)
      : device(device),
        module(*device.Load(testing::ProbeImage())),
        affine(*module->Find(testing::kProbeAffine)),
        wait(*module->Find(testing::kProbeWait)),
        cell(*DeviceBuffer::Create(device, sizeof(uint64_t))),
        stream(*device.CreateStream()) {
    Set(1);
  }
  void Set(uint64_t value) {
    EXPECT_OK(stream->CopyToDevice(cell.data(), &value, sizeof(value)));
    EXPECT_OK(stream->Synchronize());
  }
  uint64_t Get() {
    uint64_t value = 0;
    EXPECT_OK(stream->CopyToHost(&value, cell.data(), sizeof(value)));
    EXPECT_OK(stream->Synchronize());
    return value;
  }
  absl::Status Affine(uint64_t mul, uint64_t add) {
    return stream->Launch(affine, {}, testing::ProbeAffineArgs{cell.as<uint64_t>(), mul, add});
  }
  std::unique_ptr<CapturedGraph> Capture(const std::vector<uint64_t>& adds) {
    EXPECT_OK(stream->BeginCapture());
    for (const uint64_t add : adds) EXPECT_OK(Affine(3, add));
    auto graph = stream->EndCapture();
    EXPECT_OK(graph);
    return *std::move(graph);
  }

  Device& device;
  std::unique_ptr<KernelModule> module;
  Kernel affine;
  Kernel wait;
  DeviceBuffer cell;
  std::unique_ptr<Stream> stream;
};

}  // namespace reprise::runtime

#endif  // REPRISE_TESTS_RUNTIME_PROBE_BENCH_H_
