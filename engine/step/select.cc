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
  const int64_t size = launch.all_single ? at_least_one : launch.num_tokens;
  if (form == Form::kProfiled) return PickProfiled(launch.all_single, size);
  if (form == Form::kUnpadded) return PickUnpadded(launch.all_single, size);
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

absl::StatusOr<StepGraphs::Target> StepGraphs::PickProfiled(bool decode, int64_t size) {
  REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket,
                           (decode ? decode_ : mixed_)->table().SmallestThatFits(size));
  if (profiled(decode) != nullptr) {
    graphs::GraphManager& graphs = profiled(decode)->graphs();
    const auto captured = graphs.table().SmallestThatFits(size);
    if (captured.ok() && (*captured)->capacity == bucket->capacity)
      return Target{.graphs = &graphs, .size = size, .decode = decode};
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "graph '", bucket->name, "' has no profiled graph; EngineProfiler::Capture makes one"));
}

absl::StatusOr<StepGraphs::Target> StepGraphs::PickUnpadded(bool decode, int64_t size) {
  graphs::GraphManager* graphs = decode ? unpadded_decode_.get() : unpadded_mixed_.get();
  if (graphs != nullptr) {
    const auto bucket = graphs->table().SmallestThatFits(size);
    if (bucket.ok() && (*bucket)->capacity == size)
      return Target{.graphs = graphs, .size = size, .decode = decode};
  }
  return absl::FailedPreconditionError(
      absl::StrCat("a step of ", size, decode ? " rows" : " query tokens",
                   " has no graph of that size; EngineProfiler::CaptureUnpadded makes one"));
}

absl::StatusOr<graphs::GraphManagerOptions> StepGraphs::ProfiledOptions(
    bool decode, std::span<const uint32_t> sizes) const {
  graphs::GraphManagerOptions options{.buckets = {},
                                      .name_prefix = decode ? "profiled" : "profiled_mixed"};
  for (const uint32_t size : sizes) {
    REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket,
                             (decode ? decode_ : mixed_)->table().SmallestThatFits(size));
    options.buckets.push_back(bucket->capacity);
  }
  return options;
}

absl::Status StepGraphs::CaptureProfiledGraphs(runtime::Device& device,
                                               const kernels::KernelSet& kernels,
                                               std::span<const uint32_t> rows,
                                               std::span<const uint32_t> tokens) {
  if (rows.empty() && tokens.empty()) {
    return absl::InvalidArgumentError(
        "profiled graphs of no buckets: got neither rows nor tokens; allowed: one or more");
  }
  REPRISE_ASSIGN_OR_RETURN(graphs::GraphManagerOptions decode, ProfiledOptions(true, rows));
  REPRISE_ASSIGN_OR_RETURN(graphs::GraphManagerOptions mixed, ProfiledOptions(false, tokens));
  const auto stamp = [&kernels](runtime::Stream& stream, uint64_t* out) {
    return kernels::Stamp(stream, kernels, {.out = out});
  };
  const auto capture = [&](graphs::GraphManagerOptions options, bool is_mixed) {
    return graphs::ProfiledGraphs::Create(
        device, stream_, stamp, std::move(options),
        [this, is_mixed](runtime::Stream& stream, const graphs::Bucket& bucket) {
          return program_.Enqueue(stream, ShapeFor(bucket, max_rows_, is_mixed));
        });
  };
  profiled_decode_ = nullptr;
  profiled_mixed_ = nullptr;
  if (!rows.empty()) {
    REPRISE_ASSIGN_OR_RETURN(profiled_decode_, capture(std::move(decode), /*is_mixed=*/false));
  }
  if (!tokens.empty()) {
    REPRISE_ASSIGN_OR_RETURN(profiled_mixed_, capture(std::move(mixed), /*is_mixed=*/true));
  }
  return absl::OkStatus();
}

absl::Status StepGraphs::CaptureUnpaddedGraphs(std::span<const uint32_t> rows,
                                               std::span<const uint32_t> tokens) {
  for (const uint32_t size : rows)
    REPRISE_RETURN_IF_ERROR(decode_->table().SmallestThatFits(size).status());
  for (const uint32_t size : tokens)
    REPRISE_RETURN_IF_ERROR(mixed_->table().SmallestThatFits(size).status());
  unpadded_decode_ = nullptr;
  unpadded_mixed_ = nullptr;
  if (!rows.empty()) {
    REPRISE_ASSIGN_OR_RETURN(
        unpadded_decode_,
        CaptureKind(false, {.buckets = {rows.begin(), rows.end()}, .name_prefix = "unpadded"}));
  }
  if (!tokens.empty()) {
    REPRISE_ASSIGN_OR_RETURN(unpadded_mixed_,
                             CaptureKind(true, {.buckets = {tokens.begin(), tokens.end()},
                                                .name_prefix = "unpadded_mixed"}));
  }
  return absl::OkStatus();
}

absl::Status StepGraphs::ReadStamps(bool decode, uint32_t size, const uint64_t* device_begin_ns,
                                    StepStamps* stamps) {
  REPRISE_ASSIGN_OR_RETURN(const Target target, PickProfiled(decode, std::max(size, 1u)));
  REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket,
                           target.graphs->table().SmallestThatFits(target.size));
  REPRISE_ASSIGN_OR_RETURN(stamps->launches, profiled(decode)->LaunchesOf(target.size));
  stamps->num_kernel_nodes =
      target.graphs->captured()[static_cast<size_t>(bucket->index)].num_kernel_nodes;
  REPRISE_RETURN_IF_ERROR(
      stream_.CopyToHost(&stamps->begin_ns, device_begin_ns, sizeof(stamps->begin_ns)));
  return profiled(decode)->Read(target.size, &stamps->done_ns);
}

}  // namespace reprise::engine
