// SPDX-License-Identifier: Apache-2.0
// StepStamps: what EngineProfiler::ReadStamps (engine_profiler.h) tells of a profiled step, and
// ProfiledGraphInfo, what it tells of the graphs that such steps replay.
#ifndef REPRISE_ENGINE_STEP_STAMPS_H_
#define REPRISE_ENGINE_STEP_STAMPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "graphs/bucket.h"
#include "graphs/profiled_graphs.h"

namespace reprise::engine {

// When the kernels of a profiled step were done, nanoseconds on the device's clock.
struct StepStamps {
  // In order; valid until the next EngineProfiler::Capture or Drop.
  std::span<const graphs::ProfiledLaunch> launches = {};
  int num_kernel_nodes = 0;            // of the profiled graph: two per launch
  uint64_t begin_ns = 0;               // the first kernel's start
  std::vector<uint64_t> done_ns = {};  // by launch; capacity is kept
};

struct ProfiledGraphInfo {
  graphs::CapturedBucket captured;  // num_kernel_nodes: two per launch
  bool decode = false;              // capacity in rows; else in query tokens
  std::vector<graphs::ProfiledLaunch> launches;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_STAMPS_H_
