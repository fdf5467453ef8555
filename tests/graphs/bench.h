// SPDX-License-Identifier: Apache-2.0
// A device's probe kernels as an embedder's work that leaves traces, for tests of captured graphs.
#ifndef REPRISE_TESTS_GRAPHS_BENCH_H_
#define REPRISE_TESTS_GRAPHS_BENCH_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "graphs/bucket.h"
#include "runtime/memory/buffer.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {

// A device with the probe kernels and work that leaves its traces: per bucket, one block per unit
// of capacity counts itself, and a cell becomes cell * 31 + capacity.
struct Bench {
  explicit Bench(runtime::Device& device)
      : module(*device.Load(testing::ProbeImage())),
        count(*module->Find(testing::kProbeCount)),
        affine(*module->Find(testing::kProbeAffine)),
        counts(*runtime::DeviceBuffer::Create(device, 4 * kMaxBlocks)),
        cell(*runtime::DeviceBuffer::Create(device, 8)),
        stream(*device.CreateStream()) {
    Clear();
  }
  EnqueueFn Work() {
    return [this](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
      enqueued.push_back(bucket.capacity);
      const absl::Status status =
          s.Launch(count, {.grid_x = static_cast<unsigned>(bucket.capacity)},
                   testing::ProbeCountArgs{counts.as<uint32_t>(), 0});
      if (!status.ok()) return status;
      return s.Launch(affine, {},
                      testing::ProbeAffineArgs{cell.as<uint64_t>(), 31,
                                               static_cast<uint64_t>(bucket.capacity)});
    };
  }
  void Clear() {
    EXPECT_OK(stream->Fill(counts.data(), 0, counts.bytes()));
    EXPECT_OK(stream->Fill(cell.data(), 0, cell.bytes()));
  }
  // How many blocks ran since Clear, and what the cell holds.
  std::pair<uint64_t, uint64_t> Traces() {
    std::vector<uint32_t> blocks(kMaxBlocks);
    uint64_t value = 0;
    EXPECT_OK(stream->CopyToHost(blocks.data(), counts.data(), counts.bytes()));
    EXPECT_OK(stream->CopyToHost(&value, cell.data(), 8));
    EXPECT_OK(stream->Synchronize());
    uint64_t ran = 0;
    for (const uint32_t block : blocks) ran += block;
    return {ran, value};
  }

  static constexpr size_t kMaxBlocks = 64;
  std::unique_ptr<runtime::KernelModule> module;
  runtime::Kernel count;
  runtime::Kernel affine;
  runtime::DeviceBuffer counts;
  runtime::DeviceBuffer cell;
  std::unique_ptr<runtime::Stream> stream;
  std::vector<int64_t> enqueued;
};

}  // namespace reprise::graphs

#endif  // REPRISE_TESTS_GRAPHS_BENCH_H_
