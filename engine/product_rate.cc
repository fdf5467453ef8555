// SPDX-License-Identifier: Apache-2.0
#include "engine/product_rate.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/device_rates.h"
#include "graphs/capture_work.h"
#include "kernels/fill/fill.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear.h"
#include "kernels/packed_layout.h"
#include "kernels/stamp/stamp.h"
#include "kernels/weight_format.h"
#include "runtime/memory/buffer.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

// Of the weights, so that no sum grows beyond what 16 bits hold.
constexpr float kDeviation = 0.02f;

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A layer, its tokens, and graphs of one call between two stamps.
class ProductProbe {
 public:
  ProductProbe(runtime::Device& device, runtime::DType dtype, uint32_t tokens, int64_t features)
      : device_(device), dtype_(dtype), tokens_(tokens), features_(features) {}

  absl::Status Prepare() {
    REPRISE_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
    REPRISE_ASSIGN_OR_RETURN(kernels_, kernels::KernelSet::Load(device_, dtype_));
    REPRISE_ASSIGN_OR_RETURN(std::vector<double> costs, MeasureStampCost(device_));
    stamp_cost_ns_ = MedianOf(std::move(costs));
    REPRISE_RETURN_IF_ERROR(Allocate());
    REPRISE_RETURN_IF_ERROR(FillRandomly(weight_, kDeviation));
    REPRISE_RETURN_IF_ERROR(FillRandomly(x_, 1.0f));
    for (const runtime::DeviceBuffer* zeros : {&partials_, &counters_}) {
      if (zeros->bytes() != 0)
        REPRISE_RETURN_IF_ERROR(stream_->Fill(zeros->data(), 0, zeros->bytes()));
    }
    const uint64_t rows = tokens_;
    REPRISE_RETURN_IF_ERROR(stream_->CopyToDevice(words_.as<uint64_t>() + 2, &rows, sizeof(rows)));
    return stream_->Synchronize();
  }

  absl::Status Capture(kernels::WeightLayout layout) {
    REPRISE_ASSIGN_OR_RETURN(graph_,
                             graphs::CaptureWork(*stream_, [&] { return Enqueue(layout); }));
    return absl::OkStatus();
  }

  // Nanoseconds of one call.
  absl::StatusOr<double> Replay() {
    REPRISE_RETURN_IF_ERROR(graph_->Replay(*stream_));
    uint64_t ns[2] = {};
    REPRISE_RETURN_IF_ERROR(stream_->CopyToHost(ns, words_.data(), sizeof(ns)));
    REPRISE_RETURN_IF_ERROR(stream_->Synchronize());
    const double took = ns[1] > ns[0] ? static_cast<double>(ns[1] - ns[0]) : 0.0;
    return std::max(took - stamp_cost_ns_, 1.0);
  }

 private:
  absl::Status FillRandomly(const runtime::DeviceBuffer& buffer, float deviation) {
    return kernels::RandomFill(
        *stream_, *kernels_,
        {.out = buffer.data(),
         .dtype = dtype_,
         .count = static_cast<int64_t>(buffer.bytes() / runtime::SizeOf(dtype_)),
         .seed = 1,
         .stddev = deviation});
  }

  absl::Status Allocate() {
    const auto features = static_cast<uint64_t>(features_);
    const size_t element = runtime::SizeOf(dtype_);
    const struct {
      runtime::DeviceBuffer* buffer;
      uint64_t bytes;
    } wanted[] = {
        {&weight_, features * features * element},
        {&x_, tokens_ * features * element},
        {&out_, tokens_ * features * sizeof(float)},
        {&partials_, kernels::LinearPartialFloats(*kernels_, tokens_) * sizeof(float)},
        {&counters_, kernels::LinearNumCounters(*kernels_, static_cast<uint32_t>(features_)) *
                         sizeof(uint32_t)},
        {&words_, 3 * sizeof(uint64_t)}};
    for (const auto& want : wanted) {
      if (want.bytes == 0) continue;
      auto buffer = runtime::DeviceBuffer::Create(device_, want.bytes);
      if (!buffer.ok()) {
        return absl::Status(buffer.status().code(), absl::StrCat("the memory to measure products: ",
                                                                 buffer.status().message()));
      }
      *want.buffer = *std::move(buffer);
    }
    return absl::OkStatus();
  }

  absl::Status Enqueue(kernels::WeightLayout layout) {
    auto* words = words_.as<uint64_t>();
    REPRISE_RETURN_IF_ERROR(kernels::Stamp(*stream_, *kernels_, {.out = words}));
    REPRISE_RETURN_IF_ERROR(
        kernels::Linear(*stream_, *kernels_,
                        {.format = kernels::WeightFormatOf(dtype_),
                         .layout = layout,
                         .data = weight_.data(),
                         .out_features = features_,
                         .in_features = features_},
                        {.x = x_.data(),
                         .out = out_.data(),
                         .num_rows = reinterpret_cast<const uint32_t*>(words + 2),
                         .partials = partials_.as<float>(),
                         .counters = counters_.as<uint32_t>(),
                         .reads_ahead = true},
                        tokens_));
    return kernels::Stamp(*stream_, *kernels_, {.out = words + 1});
  }

  runtime::Device& device_;
  const runtime::DType dtype_;
  const uint32_t tokens_;
  const int64_t features_;
  double stamp_cost_ns_ = 0;
  std::unique_ptr<kernels::KernelSet> kernels_;
  // words_: two stamps, and the number of tokens.
  runtime::DeviceBuffer weight_, x_, out_, partials_, counters_, words_;
  std::unique_ptr<runtime::Stream> stream_;  // drains before the memory goes
  std::unique_ptr<runtime::CapturedGraph> graph_;
};

}  // namespace

absl::StatusOr<ProductRates> MeasureProducts(runtime::Device& device, runtime::DType dtype,
                                             uint32_t passes) {
  if (passes == 0)
    return absl::InvalidArgumentError("measurement of products: got 0 passes, allowed: at least 1");
  const bool host = device.properties().kind == runtime::DeviceKind::kHost;
  const bool packs = !host && kernels::CanPack(kernels::WeightFormatOf(dtype));
  // A millisecond or so of the host, and of matrix units, which take packed weights too.
  ProductRates rates{
      .tokens = packs ? 4096u : 64u, .features = packs ? 8192 : 1024, .flops_per_s = {}};
  ProductProbe probe(device, dtype, rates.tokens, rates.features);
  REPRISE_RETURN_IF_ERROR(probe.Prepare());
  // The layouts that layers may have there; what is faster counts.
  std::vector<kernels::WeightLayout> layouts = {kernels::WeightLayout::kRowMajor};
  if (packs) layouts.push_back(kernels::WeightLayout::kPacked);
  const double flops = 2.0 * rates.tokens * static_cast<double>(rates.features) *
                       static_cast<double>(rates.features);
  double fastest_ns = 0;
  for (const kernels::WeightLayout layout : layouts) {
    REPRISE_RETURN_IF_ERROR(probe.Capture(layout));
    std::vector<double> times;
    for (uint32_t pass = 0; pass <= passes; ++pass) {
      REPRISE_ASSIGN_OR_RETURN(const double ns, probe.Replay());
      if (pass > 0) times.push_back(ns);
    }
    const double median_ns = MedianOf(times);
    if (fastest_ns != 0 && median_ns >= fastest_ns) continue;
    fastest_ns = median_ns;
    rates.flops_per_s.clear();
    for (const double ns : times) rates.flops_per_s.push_back(flops / ns * 1e9);
  }
  return rates;
}

}  // namespace reprise::engine
