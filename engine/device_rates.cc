// SPDX-License-Identifier: Apache-2.0
#include "engine/device_rates.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graphs/capture_work.h"
#include "kernels/kernel_set.h"
#include "kernels/memory_probe/memory_probe.h"
#include "kernels/stamp/stamp.h"
#include "runtime/memory/buffer.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

constexpr uint64_t kPiece = kernels::kMemoryProbePiece;
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

// The range, what the kernels write of it, and two stamps.
class Probe {
 public:
  // `bytes`: whole pieces, an even number of them.
  static absl::StatusOr<std::unique_ptr<Probe>> Create(runtime::Device& device, uint64_t bytes) {
    auto probe = std::make_unique<Probe>();
    REPRISE_ASSIGN_OR_RETURN(probe->stream_, device.CreateStream());
    REPRISE_ASSIGN_OR_RETURN(probe->kernels_,
                             kernels::KernelSet::Load(device, runtime::DType::kF32));
    auto range = runtime::DeviceBuffer::Create(device, bytes);
    if (!range.ok()) {
      return absl::Status(
          range.status().code(),
          absl::StrCat("the bandwidth measurement's memory: ", range.status().message()));
    }
    probe->range_ = *std::move(range);
    REPRISE_ASSIGN_OR_RETURN(
        probe->matches_, runtime::DeviceBuffer::Create(device, bytes / kPiece * sizeof(uint32_t)));
    REPRISE_ASSIGN_OR_RETURN(probe->stamps_,
                             runtime::DeviceBuffer::Create(device, 2 * sizeof(uint64_t)));
    // Memory that nobody has written may not be there yet.
    REPRISE_RETURN_IF_ERROR(
        probe->stream_->Fill(probe->range_.data(), 0x5a, probe->range_.bytes()));
    return probe;
  }

  // Bytes per second of one pass over the whole range.
  absl::StatusOr<double> Read() {
    return Time([this] {
      return kernels::MemoryRead(*stream_, *kernels_,
                                 {.data = range_.data(),
                                  .matches = matches_.as<uint32_t>(),
                                  .bytes = static_cast<int64_t>(range_.bytes())});
    });
  }
  // From the first half of the range to the second.
  absl::StatusOr<double> Copy() {
    const size_t half = range_.bytes() / 2;
    return Time([this, half] {
      return kernels::MemoryCopy(*stream_, *kernels_,
                                 {.from = range_.data(),
                                  .to = range_.as<std::byte>() + half,
                                  .bytes = static_cast<int64_t>(half)});
    });
  }

 private:
  template <typename Launch>
  absl::StatusOr<double> Time(Launch launch) {
    auto* stamps = stamps_.as<uint64_t>();
    REPRISE_RETURN_IF_ERROR(kernels::Stamp(*stream_, *kernels_, {.out = stamps}));
    REPRISE_RETURN_IF_ERROR(launch());
    REPRISE_RETURN_IF_ERROR(kernels::Stamp(*stream_, *kernels_, {.out = stamps + 1}));
    uint64_t ns[2] = {};
    REPRISE_RETURN_IF_ERROR(stream_->CopyToHost(ns, stamps, sizeof(ns)));
    REPRISE_RETURN_IF_ERROR(stream_->Synchronize());
    const double took = static_cast<double>(std::max<uint64_t>(ns[1] - ns[0], 1));
    return static_cast<double>(range_.bytes()) / took * 1e9;
  }

  std::unique_ptr<kernels::KernelSet> kernels_;
  runtime::DeviceBuffer range_, matches_, stamps_;
  std::unique_ptr<runtime::Stream> stream_;  // drains before the memory goes
};

}  // namespace

absl::StatusOr<BandwidthRates> MeasureBandwidth(runtime::Device& device, uint64_t bytes,
                                                uint32_t passes) {
  const uint64_t range = bytes / (2 * kPiece) * (2 * kPiece);
  if (range == 0 || bytes > kMaxBytes || passes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bandwidth measurement: got ", bytes, " bytes and ", passes,
        " passes, allowed: ", 2 * kPiece, " to ", kMaxBytes, " bytes and at least 1 pass"));
  }
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<Probe> probe, Probe::Create(device, range));
  BandwidthRates result{.bytes = range, .read = {}, .copy = {}};
  for (uint32_t pass = 0; pass <= passes; ++pass) {
    REPRISE_ASSIGN_OR_RETURN(const double read, probe->Read());
    if (pass > 0) result.read.push_back(read);
  }
  for (uint32_t pass = 0; pass <= passes; ++pass) {
    REPRISE_ASSIGN_OR_RETURN(const double copy, probe->Copy());
    if (pass > 0) result.copy.push_back(copy);
  }
  return result;
}

absl::StatusOr<std::vector<double>> MeasureStampCost(runtime::Device& device) {
  constexpr size_t kStamps = 257;
  constexpr int kReplays = 32;  // after one to warm up
  REPRISE_ASSIGN_OR_RETURN(const auto kernels,
                           kernels::KernelSet::Load(device, runtime::DType::kF32));
  REPRISE_ASSIGN_OR_RETURN(const auto words,
                           runtime::DeviceBuffer::Create(device, kStamps * sizeof(uint64_t)));
  REPRISE_ASSIGN_OR_RETURN(const auto stream, device.CreateStream());
  const auto enqueue = [&]() -> absl::Status {
    for (size_t i = 0; i < kStamps; ++i) {
      REPRISE_RETURN_IF_ERROR(kernels::Stamp(*stream, *kernels, {.out = words.as<uint64_t>() + i}));
    }
    return absl::OkStatus();
  };
  REPRISE_ASSIGN_OR_RETURN(const auto graph, graphs::CaptureWork(*stream, enqueue));
  std::vector<double> cost;
  for (int i = 0; i <= kReplays; ++i) {
    uint64_t first = 0;
    uint64_t last = 0;
    REPRISE_RETURN_IF_ERROR(graph->Replay(*stream));
    REPRISE_RETURN_IF_ERROR(stream->CopyToHost(&first, words.data(), sizeof(first)));
    REPRISE_RETURN_IF_ERROR(
        stream->CopyToHost(&last, words.as<uint64_t>() + kStamps - 1, sizeof(last)));
    REPRISE_RETURN_IF_ERROR(stream->Synchronize());
    if (i > 0) cost.push_back(static_cast<double>(last - first) / (kStamps - 1));
  }
  return cost;
}

}  // namespace reprise::engine
