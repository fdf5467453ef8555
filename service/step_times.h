// SPDX-License-Identifier: Apache-2.0
// StepTimes: when the service touched a step, NowNs() each. The engine's own times come with its
// result.
#ifndef REPRISE_SERVICE_STEP_TIMES_H_
#define REPRISE_SERVICE_STEP_TIMES_H_

#include <cstdint>

namespace reprise::service {

struct StepTimes {
  uint64_t received_ns = 0;   // message taken from gRPC
  uint64_t converted_ns = 0;  // structs ready
  uint64_t submitted_ns = 0;  // a place in the pipeline was free
  uint64_t result_ns = 0;     // result seen
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_TIMES_H_
