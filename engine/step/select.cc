// SPDX-License-Identifier: Apache-2.0
#include "engine/step/select.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/stamp/stamp.h"
#include "runtime/check.h"
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

// What a graph of either kind runs. `program` must outlive it.
graphs::EnqueueFn WorkOf(const StepProgram& program, uint32_t max_rows, bool mixed) {
  return [&program, max_rows, mixed](runtime::Stream& stream, const graphs::Bucket& bucket) {
    return program.Enqueue(stream, ShapeFor(bucket, max_rows, mixed));
  };
}

}  // namespace

absl::Status StepGraphs::CaptureSet(runtime::Stream& stream, const BucketSets& buckets,
                                    const ProgressFn& progress, Set* set) {
  const auto begin = std::chrono::steady_clock::now();
  const bool beside = set->capture_stream != nullptr;
  runtime::Stream& own = beside ? *set->capture_stream : stream;
  const uint64_t total = buckets.decode.size() + buckets.mixed.size();
  const auto capture = [&](bool mixed, uint64_t before) {
    return graphs::GraphManager::Create(own,
                                        {.buckets = mixed ? buckets.mixed : buckets.decode,
                                         .name_prefix = mixed ? "mixed" : "decode",
                                         .warm_up = !beside,  // on a step's memory
                                         .progress = Forward(progress, before, total)},
                                        WorkOf(*set->program, set->max_rows, mixed));
  };
  REPRISE_ASSIGN_OR_RETURN(set->mixed, capture(true, 0));
  REPRISE_ASSIGN_OR_RETURN(set->decode, capture(false, set->mixed->captured().size()));
  if (beside) {
    set->mixed->EnqueueOn(stream);
    set->decode->EnqueueOn(stream);
  }
  set->capture_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
          .count());
  return absl::OkStatus();
}

StepGraphs::StepGraphs(runtime::Stream& stream, std::unique_ptr<Set> set)
    : stream_(stream), set_(std::move(set)) {
  KeepNames(*set_->decode);
  KeepNames(*set_->mixed);
}

void StepGraphs::Install(std::unique_ptr<Set> set, StepTicket last) {
  KeepNames(*set->decode);
  KeepNames(*set->mixed);
  replaced_.emplace_back().last = last;
  replaced_.back().set = std::exchange(set_, std::move(set));
  ++version_;
}

std::vector<std::unique_ptr<StepGraphs::Set>> StepGraphs::TakeReplaced(StepTicket published) {
  std::vector<std::unique_ptr<Set>> taken;
  auto kept = replaced_.begin();
  for (; kept != replaced_.end() && kept->last < published; ++kept)
    taken.push_back(std::move(kept->set));
  replaced_.erase(replaced_.begin(), kept);
  return taken;
}

std::vector<std::unique_ptr<StepGraphs::Set>> StepGraphs::TakeAllReplaced() {
  return TakeReplaced(std::numeric_limits<StepTicket>::max());
}

void StepGraphs::KeepNames(const graphs::GraphManager& graphs) {
  for (const graphs::CapturedBucket& captured : graphs.captured())
    names_.insert(captured.bucket.name);
}

std::string_view StepGraphs::LastingName(std::string_view graph) const {
  const auto name = names_.find(graph);
  return name == names_.end() ? graph : std::string_view(*name);
}

GraphsInfo StepGraphs::InfoOf(const Set& set, uint64_t version) {
  const std::span decode = set.decode->captured();
  const std::span mixed = set.mixed->captured();
  GraphsInfo info{.version = version,
                  .decode_buckets = {decode.begin(), decode.end()},
                  .mixed_buckets = {mixed.begin(), mixed.end()},
                  .capture_ns = set.capture_ns};
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets})
    for (const graphs::CapturedBucket& bucket : *buckets) info.device_bytes += bucket.device_bytes;
  return info;
}

absl::StatusOr<StepGraphs::PlainGraph> StepGraphs::FindPlain(std::string_view graph) const {
  std::vector<std::string> names;
  for (const bool mixed : {false, true}) {
    for (const graphs::CapturedBucket& captured : mixed ? mixed_buckets() : decode_buckets()) {
      names.push_back(captured.bucket.name);
      if (captured.bucket.name != graph) continue;
      return PlainGraph{.bucket = &captured.bucket,
                        .mixed = mixed,
                        .work = WorkOf(*set_->program, set_->max_rows, mixed)};
    }
  }
  return absl::NotFoundError(absl::StrCat("graph: got \"", std::string(graph),
                                          "\", allowed: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::vector<graphs::GraphNode>> StepGraphs::ListNodes(std::string_view graph) const {
  REPRISE_ASSIGN_OR_RETURN(const PlainGraph plain, FindPlain(graph));
  return graphs::ListNodes(stream_, *plain.bucket, plain.work);
}

absl::StatusOr<std::vector<kernels::ListedStage>> StepGraphs::ListStages(
    std::string_view graph) const {
  REPRISE_ASSIGN_OR_RETURN(const PlainGraph plain, FindPlain(graph));
  const auto rows = static_cast<uint32_t>(plain.bucket->capacity);
  const StepKernels* const step_kernels = plain.mixed ? nullptr : set_->step_kernels.get();
  if (step_kernels == nullptr || !step_kernels->Has(rows))
    return std::vector<kernels::ListedStage>();
  return step_kernels->ListStages(rows);
}

absl::StatusOr<graphs::CapturedNodes> StepGraphs::ListCapturedNodes(runtime::Device& device,
                                                                    std::string_view graph) const {
  REPRISE_ASSIGN_OR_RETURN(const PlainGraph plain, FindPlain(graph));
  REPRISE_ASSIGN_OR_RETURN(const auto stream, device.CreateStream());
  return graphs::ListCapturedNodes(*stream, *plain.bucket, plain.work);
}

absl::StatusOr<uint64_t> StepGraphs::EstimateBytes(runtime::Stream& stream,
                                                   const StepProgram& program,
                                                   const DecodeEngineOptions& options) {
  const int64_t largest =
      std::max(*std::max_element(options.decode_buckets.begin(), options.decode_buckets.end()),
               *std::max_element(options.mixed_buckets.begin(), options.mixed_buckets.end()));
  REPRISE_ASSIGN_OR_RETURN(
      const auto calibration,
      graphs::GraphManager::Create(stream, {.buckets = {largest}, .name_prefix = "calibrate"},
                                   WorkOf(program, options.max_rows, /*mixed=*/true)));
  const uint64_t graphs = options.decode_buckets.size() + options.mixed_buckets.size();
  return graphs * calibration->captured()[0].device_bytes;
}

absl::StatusOr<StepGraphs::Target> StepGraphs::Pick(const LaunchTotals& launch, StepForm form) {
  const int64_t rows = launch.num_rows;
  // A step that only drops, adds or appends replays the smallest decode graph; no row runs in it.
  const int64_t at_least_one = std::max<int64_t>(rows, 1);
  const int64_t size = launch.all_single ? at_least_one : launch.num_tokens;
  if (form == StepForm::kProfiled) return PickProfiled(launch.all_single, size);
  if (form == StepForm::kUnpadded) return PickUnpadded(launch.all_single, size);
  if (launch.all_single) return PickSingle(at_least_one);
  return PickMixed(launch.num_tokens, rows);
}

absl::StatusOr<StepGraphs::Target> StepGraphs::PickSingle(int64_t rows) {
  if (rows <= table(/*decode=*/true).max_capacity())
    return Target{.graphs = set_->decode.get(), .size = rows, .decode = true};
  return PickMixed(rows, rows);
}

absl::StatusOr<StepGraphs::Target> StepGraphs::PickMixed(int64_t tokens, int64_t rows) {
  const int64_t most = table(/*decode=*/false).max_capacity();
  if (tokens <= most) return Target{.graphs = set_->mixed.get(), .size = tokens, .decode = false};
  return absl::OutOfRangeError(absl::StrCat("the step has ", tokens, " query tokens in ", rows,
                                            " rows; allowed: at most ", most,
                                            " in the largest mixed bucket"));
}

absl::StatusOr<StepGraphs::Target> StepGraphs::PickProfiled(bool decode, int64_t size) {
  REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket, table(decode).SmallestThatFits(size));
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
  graphs::GraphManager* graphs = (decode ? set_->unpadded_decode : set_->unpadded_mixed).get();
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
    REPRISE_ASSIGN_OR_RETURN(const graphs::Bucket* bucket, table(decode).SmallestThatFits(size));
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
    return graphs::ProfiledGraphs::Create(device, stream_, stamp, std::move(options),
                                          WorkOf(*set_->program, set_->max_rows, is_mixed));
  };
  set_->profiled_decode = nullptr;
  set_->profiled_mixed = nullptr;
  if (!rows.empty()) {
    REPRISE_ASSIGN_OR_RETURN(set_->profiled_decode, capture(std::move(decode), /*is_mixed=*/false));
    KeepNames(set_->profiled_decode->graphs());
  }
  if (!tokens.empty()) {
    REPRISE_ASSIGN_OR_RETURN(set_->profiled_mixed, capture(std::move(mixed), /*is_mixed=*/true));
    KeepNames(set_->profiled_mixed->graphs());
  }
  return absl::OkStatus();
}

std::vector<ProfiledGraphInfo> StepGraphs::profiled_graphs() const {
  std::vector<ProfiledGraphInfo> infos;
  for (const bool decode : {true, false}) {
    if (profiled(decode) == nullptr) continue;
    for (const graphs::CapturedBucket& captured : profiled(decode)->graphs().captured()) {
      const auto launches = profiled(decode)->LaunchesOf(captured.bucket.capacity);
      REPRISE_CHECK(launches.ok());  // of a bucket of its own
      infos.push_back({.captured = captured,
                       .decode = decode,
                       .launches = {launches->begin(), launches->end()}});
    }
  }
  return infos;
}

void StepGraphs::DropProfiledGraphs(StepTicket last) {
  if (profiled(true) == nullptr && profiled(false) == nullptr && set_->unpadded_decode == nullptr &&
      set_->unpadded_mixed == nullptr)
    return;
  auto dropped = std::make_unique<Set>();
  replaced_.emplace_back().last = last;
  dropped->profiled_decode = std::move(set_->profiled_decode);
  dropped->profiled_mixed = std::move(set_->profiled_mixed);
  dropped->unpadded_decode = std::move(set_->unpadded_decode);
  dropped->unpadded_mixed = std::move(set_->unpadded_mixed);
  replaced_.back().set = std::move(dropped);
}

absl::Status StepGraphs::CaptureUnpaddedGraphs(std::span<const uint32_t> rows,
                                               std::span<const uint32_t> tokens) {
  for (const uint32_t size : rows)
    REPRISE_RETURN_IF_ERROR(table(/*decode=*/true).SmallestThatFits(size).status());
  for (const uint32_t size : tokens)
    REPRISE_RETURN_IF_ERROR(table(/*decode=*/false).SmallestThatFits(size).status());
  const auto capture = [this](bool mixed, std::span<const uint32_t> sizes) {
    return graphs::GraphManager::Create(stream_,
                                        {.buckets = {sizes.begin(), sizes.end()},
                                         .name_prefix = mixed ? "unpadded_mixed" : "unpadded"},
                                        WorkOf(*set_->program, set_->max_rows, mixed));
  };
  set_->unpadded_decode = nullptr;
  set_->unpadded_mixed = nullptr;
  if (!rows.empty()) {
    REPRISE_ASSIGN_OR_RETURN(set_->unpadded_decode, capture(/*mixed=*/false, rows));
    KeepNames(*set_->unpadded_decode);
  }
  if (!tokens.empty()) {
    REPRISE_ASSIGN_OR_RETURN(set_->unpadded_mixed, capture(/*mixed=*/true, tokens));
    KeepNames(*set_->unpadded_mixed);
  }
  return absl::OkStatus();
}

std::vector<ProfiledGraphInfo> StepGraphs::unpadded_graphs() const {
  std::vector<ProfiledGraphInfo> infos;
  for (const bool decode : {true, false}) {
    const graphs::GraphManager* graphs =
        (decode ? set_->unpadded_decode : set_->unpadded_mixed).get();
    if (graphs == nullptr) continue;
    for (const graphs::CapturedBucket& captured : graphs->captured())
      infos.push_back({.captured = captured, .decode = decode, .launches = {}});
  }
  return infos;
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
