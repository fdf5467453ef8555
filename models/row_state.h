// SPDX-License-Identifier: Apache-2.0
// RowStateBuffer: where layers keep what rows of some models carry beside their KV, so that others
// can copy it.
#ifndef REPRISE_MODELS_ROW_STATE_H_
#define REPRISE_MODELS_ROW_STATE_H_

#include <cstddef>

namespace reprise::models {

// [max_rows] slots of slot_bytes each, on the device.
struct RowStateBuffer {
  std::byte* data = nullptr;
  size_t slot_bytes = 0;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_ROW_STATE_H_
