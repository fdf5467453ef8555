// SPDX-License-Identifier: Apache-2.0
#include "tools/advise/verify.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "runtime/status_macros.h"
#include "tools/device_flags.h"
#include "tools/profile/step_points.h"
#include "tools/profile/step_rows.h"

namespace reprise::tools {
namespace {

void AddTimes(const engine::StepLedger& ledger, double* device_ns, double* replay_ns) {
  *device_ns += static_cast<double>(ledger.device_ns);
  *replay_ns += static_cast<double>(ledger.total_ns - ledger.validate_ns - ledger.ring_ns);
}

// Windows as the profiler has them: a step that adds the rows and does not count, then steps whose
// contexts end at the point's.
absl::Status Run(const SampledStep& sampled, engine::DecodeEngine* engine, double* device_ns,
                 double* replay_ns) {
  const uint32_t context = sampled.point.context;
  StepRows rows(*engine, sampled.point);
  REPRISE_RETURN_IF_ERROR(rows.Allocate());
  const uint32_t window = context == 0 ? kWindowSteps : std::min(kWindowSteps, context - 1);
  engine::StepResult result;
  for (uint32_t done = 0; done < sampled.count; done += window) {
    const uint32_t steps = std::min(window, sampled.count - done);
    REPRISE_RETURN_IF_ERROR(rows.AddAll(context - std::min(steps, context), &result));
    for (uint32_t i = 0; i < steps; ++i) {
      REPRISE_RETURN_IF_ERROR(rows.Continue(*engine, &result));
      AddTimes(result.ledger, device_ns, replay_ns);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VerifiedSet> RunSampledSteps(const std::vector<SampledStep>& steps,
                                            const BucketSet& set, uint32_t rounds,
                                            EngineFlags flags, Console* console,
                                            const std::function<absl::Status()>& keep_going) {
  flags.engine.decode_buckets = set.decode;
  flags.engine.mixed_buckets = set.mixed;
  flags.engine.max_rows = std::max(flags.engine.max_rows, static_cast<uint32_t>(set.decode.back()));
  flags.diagnostics.random_kv_cache = true;
  std::vector<StepPoint> points;
  for (const SampledStep& step : steps) points.push_back(step.point);
  REPRISE_RETURN_IF_ERROR(FitPool(points, &flags));
  REPRISE_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(flags, console));
  VerifiedSet verified{.device = DeviceText(loaded.engine->info().device)};
  for (uint32_t round = 0; round < rounds; ++round) {
    double device_ns = 0, replay_ns = 0;
    for (const SampledStep& step : steps) {
      console->Progress(
          absl::StrCat("verify: round ", round + 1, " of ", rounds, ", ", NameOf(step.point)));
      REPRISE_RETURN_IF_ERROR(Run(step, loaded.engine.get(), &device_ns, &replay_ns));
      REPRISE_RETURN_IF_ERROR(keep_going());
    }
    verified.device_ns.Add(device_ns);
    verified.replay_ns.Add(replay_ns);
  }
  console->ClearProgress();
  return verified;
}

}  // namespace reprise::tools
