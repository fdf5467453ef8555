// SPDX-License-Identifier: Apache-2.0
// StepGraphs: the captured graphs of a step program: decode buckets (rows of one query token),
// mixed buckets (query tokens), and for measuring profiled graphs of either kind, and graphs of
// exactly a step's size. It picks the
// smallest graph that serves a launch: step 4 of the way of a step. Threads: one at a time, as for
// GraphManager; what was captured at start may be read from any thread.
#ifndef REPRISE_ENGINE_STEP_SELECT_H_
#define REPRISE_ENGINE_STEP_SELECT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/step/launch_totals.h"
#include "engine/step_program.h"
#include "engine/step_stamps.h"
#include "graphs/graph_manager.h"
#include "graphs/graph_nodes.h"
#include "graphs/profiled_graphs.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::engine {

class StepGraphs {
 public:
  // Captures the mixed buckets of `options`, then its decode buckets, and reports stage "capture"
  // to `progress` unless it is empty. Every default of `options` is filled in. Everything that
  // `program` views, and `stream`, must outlive this object. Errors: those of GraphManager::Create.
  static absl::StatusOr<std::unique_ptr<StepGraphs>> Capture(runtime::Stream& stream,
                                                             const StepProgram& program,
                                                             const DecodeEngineOptions& options,
                                                             const ProgressFn& progress);
  // The driver's memory for all graphs of `options`: captures the largest bucket of `program` and
  // throws it away. The share of a graph depends on its nodes, not on their arguments, so that
  // `program` may run on a pool of two blocks.
  static absl::StatusOr<uint64_t> EstimateBytes(runtime::Stream& stream, const StepProgram& program,
                                                const DecodeEngineOptions& options);

  // The graphs that serve a step, and its size in their unit.
  struct Target {
    graphs::GraphManager* graphs = nullptr;
    int64_t size = 0;
    bool decode = false;  // counts rows
  };
  // The plain graphs, those of CaptureProfiledGraphs, which do the same work, or those of
  // CaptureUnpaddedGraphs.
  enum class Form : uint8_t { kPlain, kProfiled, kUnpadded };
  // Errors: OutOfRange beyond the largest mixed bucket, and for a profiled step beyond the largest
  // of its kind; FailedPrecondition for a step of the other forms without such a graph.
  absl::StatusOr<Target> Pick(const LaunchTotals& launch, Form form);
  // The plain graphs for so many rows of one query token. Errors: OutOfRange likewise.
  absl::StatusOr<Target> PickSingle(int64_t rows);

  // The nodes of a plain graph, by its name. Errors: NotFound lists the names.
  absl::StatusOr<std::vector<graphs::GraphNode>> ListNodes(std::string_view graph) const;

  std::span<const graphs::CapturedBucket> decode_buckets() const { return decode_->captured(); }
  std::span<const graphs::CapturedBucket> mixed_buckets() const { return mixed_->captured(); }

  // See EngineProfiler. REQUIRES for both: no steps are in flight. `device_begin_ns`: device
  // address of the first kernel's start.
  absl::Status CaptureProfiledGraphs(runtime::Device& device, const kernels::KernelSet& kernels,
                                     std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  // Plain graphs of exactly so many rows, and of so many query tokens; those captured earlier are
  // destroyed. REQUIRES: as above; no step kernels. Errors: those of SmallestThatFits.
  absl::Status CaptureUnpaddedGraphs(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  // `size`: rows of a decode step, query tokens of a mixed one.
  absl::Status ReadStamps(bool decode, uint32_t size, const uint64_t* device_begin_ns,
                          StepStamps* stamps);

 private:
  StepGraphs(runtime::Stream& stream, const StepProgram& program, uint32_t max_rows)
      : stream_(stream), program_(program), max_rows_(max_rows) {}
  absl::StatusOr<std::unique_ptr<graphs::GraphManager>> CaptureKind(
      bool mixed, graphs::GraphManagerOptions options);
  absl::StatusOr<Target> PickMixed(int64_t tokens, int64_t rows);
  // The profiled graph of the bucket that serves so many rows or query tokens. Errors:
  // FailedPrecondition without it.
  absl::StatusOr<Target> PickProfiled(bool decode, int64_t size);
  // The graph of exactly so many. Errors: likewise.
  absl::StatusOr<Target> PickUnpadded(bool decode, int64_t size);
  // Those of the buckets that serve `sizes`. Errors: those of SmallestThatFits.
  absl::StatusOr<graphs::GraphManagerOptions> ProfiledOptions(
      bool decode, std::span<const uint32_t> sizes) const;
  const std::unique_ptr<graphs::ProfiledGraphs>& profiled(bool decode) const {
    return decode ? profiled_decode_ : profiled_mixed_;
  }

  runtime::Stream& stream_;
  const StepProgram program_;
  const uint32_t max_rows_;
  std::unique_ptr<graphs::GraphManager> decode_;
  std::unique_ptr<graphs::GraphManager> mixed_;
  // None until CaptureProfiledGraphs.
  std::unique_ptr<graphs::ProfiledGraphs> profiled_decode_;
  std::unique_ptr<graphs::ProfiledGraphs> profiled_mixed_;
  // None until CaptureUnpaddedGraphs.
  std::unique_ptr<graphs::GraphManager> unpadded_decode_;
  std::unique_ptr<graphs::GraphManager> unpadded_mixed_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_SELECT_H_
