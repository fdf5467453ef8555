// SPDX-License-Identifier: Apache-2.0
// FinishReason: why a row stopped, for everyone who has to know it: the device decides it, the
// engine reports it, the wire has the same numbers (reprise.v1.FinishReason), schedulers act on it.
#ifndef REPRISE_KERNELS_STEP_FINISH_REASON_H_
#define REPRISE_KERNELS_STEP_FINISH_REASON_H_

#include <cstdint>

namespace reprise::kernels {

// A row that has stopped stays resident, does nothing in steps that name it, and waits to be
// dropped.
enum class FinishReason : uint32_t {
  kNone = 0,         // goes on
  kStopToken = 1,    // sampled one of its stop tokens
  kLength = 2,       // has sampled max_new_tokens
  kNoCandidate = 3,  // no token had a logit above minus infinity: token is 0, logprob is NaN
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_FINISH_REASON_H_
