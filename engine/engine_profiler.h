// SPDX-License-Identifier: Apache-2.0
// EngineProfiler: runs an engine's decode steps through profiled graphs (graphs/profiled_graphs.h),
// which tell when each kernel was done. Part of no public header: it is for our own measurements.
//
//   EngineProfiler profiler(*engine);
//   const uint32_t rows[] = {8};
//   profiler.Capture(rows);
//   profiler.Step(request, &result);  // 8 rows; the bits that engine->Step gives
//   profiler.ReadStamps(8, &stamps);
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
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "engine/step_stamps.h"
#include "graphs/graph_nodes.h"

namespace reprise::engine {

class DecodeEngine;

class EngineProfiler {
 public:
  // `engine` must outlive the profiler. The profiled graphs are the engine's, and stay when the
  // profiler goes.
  explicit EngineProfiler(DecodeEngine& engine) : engine_(engine) {}

  // Captures profiled graphs of the decode graphs that steps of so many rows replay. Those captured
  // earlier are destroyed. Allocates and synchronises. Errors: InvalidArgument none or 0 rows;
  // OutOfRange beyond the largest decode bucket; FailedPrecondition while steps are in flight;
  // Unavailable after a device fault; those of the capture.
  absl::Status Capture(std::span<const uint32_t> rows);
  // DecodeEngine::Step through the profiled graph of the step's rows. Errors: as there;
  // InvalidArgument a mode other than kReplay, or several steps; FailedPrecondition a row of
  // several query tokens, or without that graph.
  absl::Status Step(const StepRequest& request, StepResult* result);
  // The stamps of the last step if it was a profiled one of so many rows. Waits for the device.
  // Errors: FailedPrecondition while steps are in flight, or without that graph.
  absl::Status ReadStamps(uint32_t rows, StepStamps* stamps);
  // The nodes of one of the engine's own graphs, which EngineInfo names: "decode/8". Needs no
  // Capture and launches nothing. Errors: NotFound lists the names.
  absl::StatusOr<std::vector<graphs::GraphNode>> ListNodes(std::string_view graph);

 private:
  DecodeEngine& engine_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_PROFILER_H_
