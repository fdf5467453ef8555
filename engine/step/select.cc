// SPDX-License-Identifier: Apache-2.0
#include "engine/step/select.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/stamp/stamp.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

models::StepShape ShapeFor(const graphs::Bucket& bucket, uint32_t max_rows, bool mixed) {
  const auto capacity = static_cast<uint32_t>(bucket.capacity);
  return {.max_rows = std::min(capacity, max_rows), .max_tokens = capacity, .mixed = mixed};
}

// Passes what a manager reports on; `before` buckets of `total` are captured already.
std::function<void(const graphs::CaptureProgress&)> Forward(const ProgressFn& progress,
                                                            uint64_t before, uint64_t total) {
  if (!progress) return {};
  return [&progress, before, total](const graphs::CaptureProgress& p) {
    progress({.stage = "capture",
              .detail = p.bucket,
              .done = before + static_cast<uint64_t>(p.done),
              .total = total});
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<graphs::GraphManager>> StepGraphs::CaptureKind(
    bool mixed, graphs::GraphManagerOptions options) {
  return graphs::GraphManager::Create(
      stream_, std::move(options),
      [this, mixed](runtime::Stream& stream, const graphs::Bucket& bucket) {
        return program_.Enqueue(stream, ShapeFor(bucket, max_rows_, mixed));
      });
}

absl::StatusOr<std::unique_ptr<StepGraphs>> StepGraphs::Capture(runtime::Stream& stream,
                                                                const StepProgram& program,
                                                                const DecodeEngineOptions& options,
                                                                const ProgressFn& progress) {
  const uint64_t total = options.decode_buckets.size() + options.mixed_buckets.size();
  std::unique_ptr<StepGraphs> g(new StepGraphs(stream, program, options.max_rows));
  REPRISE_ASSIGN_OR_RETURN(g->mixed_,
                           g->CaptureKind(true, {.buckets = options.mixed_buckets,
                                                 .name_prefix = "mixed",
                                                 .progress = Forward(progress, 0, total)}));
  const uint64_t before = g->mixed_->captured().size();
  REPRISE_ASSIGN_OR_RETURN(g->decode_,
                           g->CaptureKind(false, {.buckets = options.decode_buckets,
                                                  .name_prefix = "decode",
                                                  .progress = Forward(progress, before, total)}));
  return g;
}

absl::StatusOr<std::vector<graphs::GraphNode>> StepGraphs::ListNodes(std::string_view graph) const {
  std::vector<std::string> names;
  for (const bool mixed : {false, true}) {
    for (const graphs::CapturedBucket& captured : mixed ? mixed_buckets() : decode_buckets()) {
      names.push_back(captured.bucket.name);
      if (captured.bucket.name != graph) continue;
      return graphs::ListNodes(
          stream_, captured.bucket,
          [this, mixed](runtime::Stream& stream, const graphs::Bucket& bucket) {
            return program_.Enqueue(stream, ShapeFor(bucket, max_rows_, mixed));
          });
    }
  }
  return absl::NotFoundError(absl::StrCat("graph: got \"", std::string(graph),
                                          "\", allowed: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<uint64_t> StepGraphs::EstimateBytes(runtime::Stream& stream,
                                                   const StepProgram& program,
                                                   const DecodeEngineOptions& options) {
  const int64_t largest =
      std::max(*std::max_element(options.decode_buckets.begin(), options.decode_buckets.end()),
               *std::max_element(options.mixed_buckets.begin(), options.mixed_buckets.end()));
  StepGraphs g(stream, program, options.max_rows);
  REPRISE_ASSIGN_OR_RETURN(g.mixed_,
                           g.CaptureKind(true, {.buckets = {largest}, .name_prefix = "calibrate"}));
  const uint64_t graphs = options.decode_buckets.size() + options.mixed_buckets.size();
  return graphs * g.mixed_->captured()[0].device_bytes;
}

absl::StatusOr<StepGraphs::Target> StepGraphs::Pick(const LaunchTotals& launch, Form form) {
  const int64_t rows = launch.num_rows;
  // A step that only drops, adds or appends replays the smallest decode graph; no row runs in it.
  const int64_t at_least_one = std::max<int64_t>(rows, 1);
  if (form == Form::kProfiled) return PickProfiled(launch.all_single ? at_least_one : 0);
  if (launch.all_single) return PickSingle(at_least_one);
  return PickMixed(launch.num_tokens, rows);
}

absl::StatusOr<StepGraphs::Target> StepGraphs::PickSingle(int64_t rows) {
  if (rows <= decode_->table().max_capacity())
    return Target{.graphs = decode_.get(), .size = rows, .decode = true};
  return PickMixed(rows, rows);
}

absl::StatusOr<StepGraphs::Target> StepGraphs::PickMixed(int64_t tokens, int64_t rows) {
  if (tokens <= mixed_->table().max_capacity())
    return Target{.graphs = mixed_.get(), .size = tokens, .decode = false};
  return absl::OutOfRangeError(
      absl::StrCat("the step has ", tokens, " query tokens in ", rows, " rows; allowed: at most ",
                   mixed_->table().max_capacity(), " in the largest mixed bucket"));
}

absl::StatusOr<StepGraphs::Target> StepGraphs::PickProfiled(int64_t rows) {
  if (rows == 0)
    return absl::FailedPreconditionError(
        "a profiled step has a row of several query tokens; allowed: decode steps");
  REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket, decode_->table().SmallestThatFits(rows));
  if (profiled_ != nullptr) {
    const auto captured = profiled_->graphs().table().SmallestThatFits(rows);
    if (captured.ok() && (*captured)->capacity == bucket->capacity)
      return Target{.graphs = &profiled_->graphs(), .size = rows, .decode = true};
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "graph '", bucket->name, "' has no profiled graph; EngineProfiler::Capture makes one"));
}

absl::Status StepGraphs::CaptureProfiledGraphs(runtime::Device& device,
                                               const kernels::KernelSet& kernels,
                                               std::span<const uint32_t> rows) {
  graphs::GraphManagerOptions options{.buckets = {}, .name_prefix = "profiled"};
  for (const uint32_t count : rows) {
    REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket,
                             decode_->table().SmallestThatFits(count));
    options.buckets.push_back(bucket->capacity);
  }
  profiled_ = nullptr;
  REPRISE_ASSIGN_OR_RETURN(
      profiled_, graphs::ProfiledGraphs::Create(
                     device, stream_,
                     [&kernels](runtime::Stream& stream, uint64_t* out) {
                       return kernels::Stamp(stream, kernels, {.out = out});
                     },
                     std::move(options),
                     [this](runtime::Stream& stream, const graphs::Bucket& bucket) {
                       return program_.Enqueue(stream, ShapeFor(bucket, max_rows_, false));
                     }));
  return absl::OkStatus();
}

absl::Status StepGraphs::ReadStamps(uint32_t rows, const uint64_t* device_begin_ns,
                                    StepStamps* stamps) {
  REPRISE_ASSIGN_OR_RETURN(const Target profiled, PickProfiled(std::max(rows, 1u)));
  REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket,
                           profiled.graphs->table().SmallestThatFits(profiled.size));
  REPRISE_ASSIGN_OR_RETURN(stamps->launches, profiled_->LaunchesOf(profiled.size));
  stamps->num_kernel_nodes =
      profiled.graphs->captured()[static_cast<size_t>(bucket->index)].num_kernel_nodes;
  REPRISE_RETURN_IF_ERROR(
      stream_.CopyToHost(&stamps->begin_ns, device_begin_ns, sizeof(stamps->begin_ns)));
  return profiled_->Read(profiled.size, &stamps->done_ns);
}

}  // namespace reprise::engine
