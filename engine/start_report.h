// SPDX-License-Identifier: Apache-2.0
// StartReport: where the time of an engine's start went, and the memory that it has: what
// EngineInfo sums up, in parts. Part of no public header; EngineProfiler has it.
#ifndef REPRISE_ENGINE_START_REPORT_H_
#define REPRISE_ENGINE_START_REPORT_H_

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace reprise::engine {

struct StartPhase {
  std::string_view name;  // "weights"
  uint64_t ns = 0;
};

struct StartReport {
  // In order. They add up to total_ns.
  std::vector<StartPhase> phases;
  uint64_t total_ns = 0;

  // Bytes on the device. These two and step_kernel_bytes are MemoryInfo::workspace_bytes.
  uint64_t activations_bytes = 0;  // between layers; nothing lives longer than a step
  uint64_t state_bytes = 0;        // plan, resident rows, sampling
  uint64_t step_kernel_bytes = 0;
  // What the device's free memory became less by than what is told apart: modules of kernels, and
  // what the driver keeps for launches. As measured, so that other processes that took or gave back
  // memory meanwhile are in it; 0 on the host.
  uint64_t driver_bytes = 0;
  // Taken before the engine began: by the driver for this process, and by others. 0 on the host.
  uint64_t before_bytes = 0;
  uint64_t free_bytes = 0;  // left in the end; 0 on the host

  // Bytes of the host's pinned memory, beside MemoryInfo::swap_bytes.
  uint64_t rings_bytes = 0;     // metadata and results
  uint64_t transfer_bytes = 0;  // contents of blocks on their way, and a notice
};

// Cuts a start into phases without a gap between them.
class StartClock {
 public:
  // What is over now is so called.
  void Mark(std::string_view name) {
    const Clock::time_point now = Clock::now();
    phases_.push_back({.name = name, .ns = Nanoseconds(now - last_)});
    last_ = now;
  }
  // Likewise, and so much of it was `part`.
  void Mark(std::string_view name, std::string_view part, uint64_t part_ns) {
    Mark(name);
    const uint64_t all = phases_.back().ns;
    phases_.back().ns = all - (part_ns < all ? part_ns : all);
    phases_.push_back({.name = part, .ns = all - phases_.back().ns});
  }
  void Finish(StartReport* report) {
    report->total_ns = 0;
    for (const StartPhase& phase : phases_) report->total_ns += phase.ns;
    report->phases = phases_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static uint64_t Nanoseconds(Clock::duration time) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  }
  Clock::time_point last_ = Clock::now();
  std::vector<StartPhase> phases_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_START_REPORT_H_
