// SPDX-License-Identifier: Apache-2.0
// A few steps that stand for all of a trace, of sizes that can be measured.
#ifndef REPRISE_TOOLS_ADVISE_STEP_SAMPLE_H_
#define REPRISE_TOOLS_ADVISE_STEP_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/advise/batch_trace.h"
#include "tools/engine_flags.h"
#include "tools/profile/step_points.h"

namespace reprise::tools {

// Of steps that tell none, tokens in a row's KV.
inline constexpr uint32_t kUnknownContext = 128;

struct SampledStep {
  StepPoint point;
  uint32_t count = 0;  // how many of the sampled steps are so
};

// `count` steps that stand for the trace: by size and context, at equal distances of weight. A
// step's tokens beyond one for each row are one prompt's, or as few prompts' as a row's limit
// allows. Contexts that are not known are `default_context`; none is beyond `max_context`.
std::vector<SampledStep> SampleSteps(std::vector<TracedStep> steps, uint32_t count,
                                     uint32_t default_context, uint32_t max_context);

// SampleSteps with kUnknownContext. Errors: InvalidArgument where no step of the trace runs a row.
absl::StatusOr<std::vector<SampledStep>> SampleStepsWithin(uint32_t max_context,
                                                           const std::vector<TracedStep>& steps,
                                                           uint32_t count);
// Likewise, with the longest context that an engine of these flags takes. Errors: also those of the
// model's config.
absl::StatusOr<std::vector<SampledStep>> SampleStepsFor(const EngineFlags& flags,
                                                        const std::vector<TracedStep>& steps,
                                                        uint32_t count);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADVISE_STEP_SAMPLE_H_
