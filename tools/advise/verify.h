// SPDX-License-Identifier: Apache-2.0
// Runs steps of a trace's sizes on a device, with the graphs of a set of buckets. Contexts and
// tokens are made up; sizes are the trace's. docs/advise.md has the method.
#ifndef REPRISE_TOOLS_ADVISE_VERIFY_H_
#define REPRISE_TOOLS_ADVISE_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/advise/advice.h"
#include "tools/advise/step_sample.h"
#include "tools/console.h"
#include "tools/engine_flags.h"
#include "tools/samples.h"

namespace reprise::tools {

// What the sampled steps took together, by round.
struct VerifiedSet {
  std::string device = {};
  Samples device_ns = {};  // by the device's clock
  Samples replay_ns = {};  // by the host's: the launch call's begin to the result seen
};

// Loads the model with the set's buckets and runs every sampled step `rounds` times. `keep_going`
// is asked after each size. Errors: the engine's, those of FitPool and of `keep_going`.
absl::StatusOr<VerifiedSet> RunSampledSteps(const std::vector<SampledStep>& steps,
                                            const BucketSet& set, uint32_t rounds,
                                            EngineFlags flags, Console* console,
                                            const std::function<absl::Status()>& keep_going);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADVISE_VERIFY_H_
