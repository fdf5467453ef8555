// SPDX-License-Identifier: Apache-2.0
// StepGraphs: the captured graphs of a step program: decode buckets (rows of one query token),
// mixed buckets (query tokens), and for measuring profiled graphs of either kind, and graphs of
// exactly a step's size. It picks the smallest graph that serves a launch: step 4 of the way of a
// step. Threads: one at a time, as for GraphManager, but for CaptureSet.
#ifndef REPRISE_ENGINE_STEP_SELECT_H_
#define REPRISE_ENGINE_STEP_SELECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/step/launch_totals.h"
#include "engine/step_form.h"
#include "engine/step_kernels.h"
#include "engine/step_program.h"
#include "engine/step_result.h"
#include "engine/step_stamps.h"
#include "graphs/captured_nodes.h"
#include "graphs/graph_manager.h"
#include "graphs/graph_nodes.h"
#include "graphs/profiled_graphs.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::engine {

class StepGraphs {
 public:
  // Graphs of both kinds, and what they work from.
  struct Set {
    std::unique_ptr<runtime::Stream> capture_stream;  // nullptr: they were captured on the steps'
    std::unique_ptr<StepKernels> step_kernels;        // nullptr: every op is a kernel
    std::unique_ptr<const StepProgram> program;
    uint32_t max_rows = 0;
    std::unique_ptr<graphs::GraphManager> decode;
    std::unique_ptr<graphs::GraphManager> mixed;
    uint64_t capture_ns = 0;  // all of them, wall time
    // None until CaptureProfiledGraphs.
    std::unique_ptr<graphs::ProfiledGraphs> profiled_decode;
    std::unique_ptr<graphs::ProfiledGraphs> profiled_mixed;
    // None until CaptureUnpaddedGraphs.
    std::unique_ptr<graphs::GraphManager> unpadded_decode;
    std::unique_ptr<graphs::GraphManager> unpadded_mixed;
  };

  // Captures the mixed buckets, then the decode buckets of a set that has all but its graphs, and
  // reports stage "capture" to `progress` unless it is empty. On the set's capture stream, if it
  // has one: while steps run on `stream`, which its graphs are replayed on in the end; else on
  // `stream`, where each bucket runs once before. Everything that the program views, and `stream`,
  // must outlive the set. Errors: those of GraphManager::Create.
  static absl::Status CaptureSet(runtime::Stream& stream, const BucketSets& buckets,
                                 const ProgressFn& progress, Set* set);

  // `stream`: that of the set's graphs.
  StepGraphs(runtime::Stream& stream, std::unique_ptr<Set> set);
  // Launches that are picked from here on replay graphs of `set`. What was there stays: the steps
  // up to `last` may still replay it. Throws std::bad_alloc with nothing changed.
  void Install(std::unique_ptr<Set> set, StepTicket last);
  // The sets that nothing replays any more once the result of step `published` is there. A step's
  // result comes before its graph has ended, hence those that only steps before it replayed. To be
  // destroyed where it delays nobody: that may wait for the device.
  std::vector<std::unique_ptr<Set>> TakeReplaced(StepTicket published);
  // All of them. REQUIRES: the stream has nothing to do.
  std::vector<std::unique_ptr<Set>> TakeAllReplaced();
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
  // Errors: OutOfRange beyond the largest mixed bucket, and for a profiled step beyond the largest
  // of its kind; FailedPrecondition for a step of the other forms without such a graph.
  absl::StatusOr<Target> Pick(const LaunchTotals& launch, StepForm form);
  // The plain graphs for so many rows of one query token. Errors: OutOfRange likewise.
  absl::StatusOr<Target> PickSingle(int64_t rows);

  // The nodes of a plain graph, by its name. Errors: NotFound lists the names.
  absl::StatusOr<std::vector<graphs::GraphNode>> ListNodes(std::string_view graph) const;
  // The stages of its step kernel; none of a graph without one. Errors: likewise.
  absl::StatusOr<std::vector<kernels::ListedStage>> ListStages(std::string_view graph) const;
  // The same as a capture on a stream of its own has them. Errors: likewise; those of the stream
  // and of graphs::ListCapturedNodes.
  absl::StatusOr<graphs::CapturedNodes> ListCapturedNodes(runtime::Device& device,
                                                          std::string_view graph) const;

  static GraphsInfo InfoOf(const Set& set, uint64_t version);
  GraphsInfo info() const { return InfoOf(*set_, version_); }
  // The same name, for as long as this object lives. REQUIRES: a graph's of any set so far.
  std::string_view LastingName(std::string_view graph) const;

  // See EngineProfiler. REQUIRES for both: no steps are in flight. `device_begin_ns`: device
  // address of the first kernel's start.
  absl::Status CaptureProfiledGraphs(runtime::Device& device, const kernels::KernelSet& kernels,
                                     std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  // Those that there are, of decode steps first.
  std::vector<ProfiledGraphInfo> profiled_graphs() const;
  // There are none from here on, nor graphs without padding; the steps up to `last` may still
  // replay them: see Install. Throws std::bad_alloc with nothing changed.
  void DropProfiledGraphs(StepTicket last);
  // Plain graphs of exactly so many rows, and of so many query tokens; those captured earlier are
  // destroyed. REQUIRES: as above; no step kernels. Errors: those of SmallestThatFits.
  absl::Status CaptureUnpaddedGraphs(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  // Those that there are, of decode steps first; without launches.
  std::vector<ProfiledGraphInfo> unpadded_graphs() const;
  // `size`: rows of a decode step, query tokens of a mixed one.
  absl::Status ReadStamps(bool decode, uint32_t size, const uint64_t* device_begin_ns,
                          StepStamps* stamps);

 private:
  std::span<const graphs::CapturedBucket> decode_buckets() const {
    return set_->decode->captured();
  }
  std::span<const graphs::CapturedBucket> mixed_buckets() const { return set_->mixed->captured(); }
  void KeepNames(const graphs::GraphManager& graphs);
  struct PlainGraph {
    const graphs::Bucket* bucket = nullptr;
    bool mixed = false;
    graphs::EnqueueFn work;
  };
  // Errors: NotFound lists the names.
  absl::StatusOr<PlainGraph> FindPlain(std::string_view graph) const;
  absl::StatusOr<Target> PickMixed(int64_t tokens, int64_t rows);
  // The profiled graph of the bucket that serves so many rows or query tokens. Errors:
  // FailedPrecondition without it.
  absl::StatusOr<Target> PickProfiled(bool decode, int64_t size);
  // The graph of exactly so many. Errors: likewise.
  absl::StatusOr<Target> PickUnpadded(bool decode, int64_t size);
  // Those of the buckets that serve `sizes`. Errors: those of SmallestThatFits.
  absl::StatusOr<graphs::GraphManagerOptions> ProfiledOptions(
      bool decode, std::span<const uint32_t> sizes) const;
  graphs::ProfiledGraphs* profiled(bool decode) const {
    return (decode ? set_->profiled_decode : set_->profiled_mixed).get();
  }
  const graphs::BucketTable& table(bool decode) const {
    return (decode ? set_->decode : set_->mixed)->table();
  }

  runtime::Stream& stream_;
  std::unique_ptr<Set> set_;
  struct ReplacedSet {
    std::unique_ptr<Set> set;
    StepTicket last = 0;
  };
  std::vector<ReplacedSet> replaced_;  // the oldest first
  uint64_t version_ = 1;
  std::set<std::string, std::less<>> names_;  // of graphs of all sets so far
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_SELECT_H_
