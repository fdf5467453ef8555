// SPDX-License-Identifier: Apache-2.0
// Arguments of the stamp kernel. See stamp.h.
#ifndef REPRISE_KERNELS_STAMP_STAMP_ARGS_H_
#define REPRISE_KERNELS_STAMP_STAMP_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct StampArgs {
  uint64_t* out = nullptr;  // one word
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STAMP_STAMP_ARGS_H_
