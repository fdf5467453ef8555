// SPDX-License-Identifier: Apache-2.0
#include "tools/advise/step_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "models/model_source.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// Rows of one token, and prompts for what is left: one, or as few as keep within a row's limit.
StepPoint PointOf(int64_t rows, int64_t tokens, double context, uint32_t max_context) {
  StepPoint point{
      .rows = static_cast<uint32_t>(rows),
      .context = static_cast<uint32_t>(std::clamp<double>(std::round(context), 2, max_context))};
  if (tokens == rows) return point;
  int64_t prompts = 1;
  while (prompts < rows && tokens - (rows - prompts) > prompts * int64_t{max_context}) ++prompts;
  point.rows = static_cast<uint32_t>(rows - prompts);
  if (point.rows == 0) point.context = 0;
  int64_t left = tokens - point.rows;
  for (; prompts > 0; --prompts) {
    point.prompts.push_back(static_cast<uint32_t>((left + prompts - 1) / prompts));
    left -= point.prompts.back();
  }
  return point;
}

}  // namespace

std::vector<SampledStep> SampleSteps(std::vector<TracedStep> steps, uint32_t count,
                                     uint32_t default_context, uint32_t max_context) {
  std::erase_if(steps, [](const TracedStep& step) { return step.rows == 0; });
  double all = 0;
  for (TracedStep& step : steps) {
    if (step.context <= 0) step.context = default_context;
    all += step.weight;
  }
  std::sort(steps.begin(), steps.end(), [](const TracedStep& a, const TracedStep& b) {
    return std::tuple(a.is_decode(), a.tokens, a.rows, a.context) <
           std::tuple(b.is_decode(), b.tokens, b.rows, b.context);
  });
  std::vector<SampledStep> sampled;
  double passed = 0;     // weight of the steps before
  double contexts = 0;   // sum of the present size's
  uint32_t of_size = 0;  // taken of it
  uint32_t taken = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    passed += steps[i].weight;
    for (; taken < count && (taken + 0.5) * all / count <= passed; ++taken, ++of_size)
      contexts += steps[i].context;
    const bool ends = i + 1 == steps.size() || steps[i + 1].tokens != steps[i].tokens ||
                      steps[i + 1].rows != steps[i].rows;
    if (!ends) continue;
    if (of_size > 0) {
      const StepPoint point =
          PointOf(steps[i].rows, steps[i].tokens, contexts / of_size, max_context);
      sampled.push_back({.point = point, .count = of_size});
    }
    contexts = 0;
    of_size = 0;
  }
  return sampled;
}

absl::StatusOr<std::vector<SampledStep>> SampleStepsWithin(uint32_t max_context,
                                                           const std::vector<TracedStep>& steps,
                                                           uint32_t count) {
  std::vector<SampledStep> sampled = SampleSteps(steps, count, kUnknownContext, max_context);
  if (!sampled.empty()) return sampled;
  return absl::InvalidArgumentError("the trace: got no step that runs a row, allowed: one or more");
}

absl::StatusOr<std::vector<SampledStep>> SampleStepsFor(const EngineFlags& flags,
                                                        const std::vector<TracedStep>& steps,
                                                        uint32_t count) {
  REPRISE_ASSIGN_OR_RETURN(const models::ModelSpec model, models::ReadModelSpec(flags.source));
  const auto of_model = static_cast<uint32_t>(
      std::min<int64_t>(model.max_position_embeddings, std::numeric_limits<int32_t>::max()));
  const uint32_t asked = flags.engine.max_context_length;
  return SampleStepsWithin(asked == 0 ? of_model : asked, steps, count);
}

}  // namespace reprise::tools
