// SPDX-License-Identifier: Apache-2.0
// The shared memory of sampling's final pass, as its body and its launch both need it.
#ifndef REPRISE_KERNELS_SAMPLE_SAMPLE_GEOMETRY_H_
#define REPRISE_KERNELS_SAMPLE_SAMPLE_GEOMETRY_H_

#include <cstdint>

#include "kernels/step/ring.h"

namespace reprise::kernels {

constexpr int kSelectBins = 2048;
constexpr int kSelectGroups = 64;
constexpr int kBinsOfGroup = kSelectBins / kSelectGroups;

// Scratch of a selection, in dynamic shared memory.
struct SelectScratch {
  uint64_t bins[kSelectBins];
  uint64_t groups[kSelectGroups];
  uint64_t before;  // weight ahead of the bin found
  uint64_t inside;  // weight in it
  uint64_t total;
  uint32_t bin;  // kSelectBins: the target lies beyond all weight
};

struct TopToken {
  uint32_t id;
  float logit;
};

// Scratch of a report, in dynamic shared memory.
struct ReportScratch {
  SelectScratch select;
  TopToken found[kMaxTopLogprobs];
  uint32_t num_found;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SAMPLE_SAMPLE_GEOMETRY_H_
