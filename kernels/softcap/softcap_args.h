// SPDX-License-Identifier: Apache-2.0
// Arguments of the soft cap. See softcap.h.
#ifndef REPRISE_KERNELS_SOFTCAP_SOFTCAP_ARGS_H_
#define REPRISE_KERNELS_SOFTCAP_SOFTCAP_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct SoftcapArgs {
  float* x = nullptr;                  // [rows, columns], in place
  const uint32_t* num_rows = nullptr;  // live count
  int32_t columns = 0;
  float cap = 0.0f;
};

// Elements that a thread takes at a time, where a row is a multiple of them.
constexpr int32_t kSoftcapPack = 4;
// Packs that a thread takes in all.
constexpr int32_t kSoftcapPacksPerThread = 4;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SOFTCAP_SOFTCAP_ARGS_H_
