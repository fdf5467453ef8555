// SPDX-License-Identifier: Apache-2.0
// StepForm: which of an engine's graphs a step replays. Rows get the same bits from all of them.
#ifndef REPRISE_ENGINE_STEP_FORM_H_
#define REPRISE_ENGINE_STEP_FORM_H_

#include <cstdint>

namespace reprise::engine {

enum class StepForm : uint8_t {
  kPlain,     // one of the engine's buckets
  kProfiled,  // the same with a stamp behind every kernel: EngineProfiler::Capture
  kUnpadded,  // one of exactly the step's size: EngineProfiler::CaptureUnpadded
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_FORM_H_
