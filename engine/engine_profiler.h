// SPDX-License-Identifier: Apache-2.0
// EngineProfiler: runs an engine's steps through profiled graphs (graphs/profiled_graphs.h),
// which tell when each kernel was done. Part of no public header: it is for our own measurements.
//
//   EngineProfiler profiler(*engine);
//   const uint32_t rows[] = {8};
//   profiler.Capture(rows);
//   profiler.Step(request, &result);  // 8 rows; the bits that engine->Step gives
//   profiler.ReadStamps(8, &stamps);
//
// A caller that submits and waits apart, as a server does, has Submit, DecodeEngine::Wait and
// ReadLastStamps.
//
// Steps of the engine itself go on replaying its own graphs, which carry no stamps; both kinds may
// take turns. Threads: as DecodeEngine.
#ifndef REPRISE_ENGINE_ENGINE_PROFILER_H_
#define REPRISE_ENGINE_ENGINE_PROFILER_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/start_report.h"
#include "engine/step_form.h"
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "engine/step_stamps.h"
#include "graphs/captured_nodes.h"
#include "graphs/graph_nodes.h"
#include "kernels/step_kernel/stage_list.h"
#include "runtime/device.h"

namespace reprise::engine {

class DecodeEngine;

class EngineProfiler {
 public:
  // `engine` must outlive the profiler. The profiled graphs are the engine's, and stay when the
  // profiler goes; DecodeEngine::SetBuckets drops them, and those of CaptureUnpadded.
  explicit EngineProfiler(DecodeEngine& engine) : engine_(engine) {}

  // The device of the engine, for measurements beside its steps.
  runtime::Device& device();

  // Captures profiled graphs of the decode graphs that steps of so many rows replay, and of the
  // mixed graphs that steps of so many query tokens do. Those captured earlier are destroyed.
  // Allocates and synchronises. Errors: InvalidArgument neither, or 0 of either; OutOfRange beyond
  // the largest bucket of the kind; FailedPrecondition while steps are in flight; Unavailable after
  // a device fault; those of the capture.
  absl::Status Capture(std::span<const uint32_t> rows, std::span<const uint32_t> tokens = {});
  // DecodeEngine::Step through the profiled graph of the step's rows or query tokens. Errors: as
  // there; InvalidArgument a mode other than kReplay, or several steps; FailedPrecondition without
  // that graph; OutOfRange a decode step of more rows than the largest decode bucket has.
  absl::Status Step(const StepRequest& request, StepResult* result);
  // The first half of Step or, as `form` says, of StepUnpadded: DecodeEngine::Wait and WaitJoint
  // have the second. REQUIRES: not kPlain. Errors: as theirs.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request,
                                    StepForm form = StepForm::kProfiled);
  // The profiled graphs that there are, those of decode steps first.
  std::vector<ProfiledGraphInfo> captured() const;
  // Neither they nor those of CaptureUnpadded are replayed any more, and all are destroyed: at once
  // where no step is in flight, else with the result of a later one. Allowed at any time. Errors:
  // those of the device.
  absl::Status Drop();
  // Captures graphs of exactly so many rows of decode steps, and so many query tokens of mixed
  // ones, which the engine's buckets need not have: what a step costs without padding. Those
  // captured earlier are destroyed. Allocates and synchronises. Errors: as Capture;
  // FailedPrecondition with step kernels, which are of the engine's own buckets alone.
  absl::Status CaptureUnpadded(std::span<const uint32_t> rows,
                               std::span<const uint32_t> tokens = {});
  // DecodeEngine::Step through the graph of exactly the step's rows or query tokens. Errors: as
  // Step.
  absl::Status StepUnpadded(const StepRequest& request, StepResult* result);
  // The graphs of CaptureUnpadded that there are, those of decode steps first; without launches.
  std::vector<ProfiledGraphInfo> captured_unpadded() const;
  // The stamps of the last step if it was a profiled decode step of so many rows. Waits for the
  // device. Errors: FailedPrecondition while steps are in flight, or without that graph.
  absl::Status ReadStamps(uint32_t rows, StepStamps* stamps);
  // The same of the profiled step that was submitted last, whatever its size.
  absl::Status ReadLastStamps(StepStamps* stamps);
  // Likewise of a mixed step of so many query tokens.
  absl::Status ReadMixedStamps(uint32_t tokens, StepStamps* stamps);
  // Where the engine's start went. Valid as long as the engine.
  const StartReport& start_report() const;
  // The nodes of one of the engine's own graphs, which EngineInfo names: "decode/8". Needs no
  // Capture and launches nothing. Errors: NotFound lists the names.
  absl::StatusOr<std::vector<graphs::GraphNode>> ListNodes(std::string_view graph);
  // The stages of its step kernel, in order; none where its layers are no such kernel. Errors:
  // likewise.
  absl::StatusOr<std::vector<kernels::ListedStage>> ListStages(std::string_view graph);
  // The nodes as a captured graph has them: captures the graph's work once more, on a stream of its
  // own, asks the device, and drops it unreplayed. graphs::AsCaptured compares the two.
  // Allocates and synchronises. Errors: likewise; Unimplemented where the device does not tell
  // (HIP); FailedPrecondition while steps are in flight; Unavailable after a device fault; those of
  // the capture.
  absl::StatusOr<graphs::CapturedNodes> ListCapturedNodes(std::string_view graph);

 private:
  DecodeEngine& engine_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_PROFILER_H_
