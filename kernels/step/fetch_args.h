// SPDX-License-Identifier: Apache-2.0
// Arguments of fetch. See fetch.h.
#ifndef REPRISE_KERNELS_STEP_FETCH_ARGS_H_
#define REPRISE_KERNELS_STEP_FETCH_ARGS_H_

#include <cstdint>

#include "kernels/step/ring.h"
#include "kernels/step/rows.h"

namespace reprise::kernels {

// The ring entry's first bytes come over the bus in one trip: header and, for up to 126 rows, all
// of the step that is not a table. The kernel's dynamic shared memory.
constexpr int kFetchAheadBytes = 4096;

struct FetchArgs {
  // [depth, layout.bytes], mapped pinned memory, device address
  const unsigned char* ring = nullptr;
  StepEntryLayout layout;
  uint32_t depth = 0;
  const StepProgress* progress = nullptr;  // device memory
  StepPlan plan;
  ResidentRows rows;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_FETCH_ARGS_H_
