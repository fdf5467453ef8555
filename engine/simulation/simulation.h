// SPDX-License-Identifier: Apache-2.0
// Simulation: an engine that computes nothing. Its steps are validated, planned, sampled and
// published as any engine's, in captured graphs of the host device; in place of the decoder they
// make up one likeliest token, and they take as long as another device was measured to take. No
// weights are loaded and the KV pool has no memory.
//
// Threads: SimulatedDecoder's work runs on the engine's stream.
#ifndef REPRISE_ENGINE_SIMULATION_SIMULATION_H_
#define REPRISE_ENGINE_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/simulation/step_cost.h"
#include "engine/step_state.h"
#include "models/config/model_spec.h"
#include "runtime/device.h"

namespace reprise::engine {

struct Simulation {
  std::string device_name;  // what the engine says that it runs on
  StepCost cost;
  // Returns `ns` after `begin_ns` of the clock of std::chrono::steady_clock. Empty: sleeps. Tests
  // note what they are asked, and return at once.
  std::function<void(uint64_t begin_ns, uint64_t ns)> wait = {};
};

// The token that a simulated model finds likeliest behind `token` at `position` of its row: below
// `vocab`, and dependent on nothing else.
uint32_t MadeUpToken(uint32_t token, uint32_t position, uint32_t vocab);

// What a step asks of the device, as its plan has it.
StepLoad LoadOf(const kernels::StepPlan& plan, const models::ModelSpec& model);

// What stands in the decoder's place in a step. Views all that it is given.
class SimulatedDecoder {
 public:
  // logits: [max_logits, vocab] f32, zeros, as the sampling kernels read them.
  SimulatedDecoder(const Simulation& simulation, const StepState& state,
                   const models::ModelSpec& model, float* logits, uint32_t max_logits);

  // The decoder's place: leaves logits of kPeak for the made-up token, and 0 for all others. Where
  // no row asks for more than its token, the token itself: then the sampling kernels, whose work on
  // a large vocabulary would take longer than the step, find no row.
  absl::Status EnqueueTokens(runtime::Stream& stream);
  // Before publish: ends when the step's time is over, counted from its first node.
  absl::Status EnqueueWait(runtime::Stream& stream);

  // So high that the token is drawn at any temperature, unless the row may not sample it.
  static constexpr float kPeak = 1e4f;

 private:
  uint32_t TokenOf(uint32_t logits_row) const;
  void MakeUpTokens();
  void MakeUpLogits();
  void Wait();

  const Simulation& simulation_;
  const StepState& state_;
  const models::ModelSpec& model_;
  float* const logits_;
  const uint32_t vocab_;
  std::vector<uint32_t> peaks_;  // of each row of logits: its token that is not 0
  bool skips_sampling_ = false;  // in the step that runs
  uint32_t num_sampled_ = 0;     // of that step, while the sampling kernels are to find none
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SIMULATION_SIMULATION_H_
