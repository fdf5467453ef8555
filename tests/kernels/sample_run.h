// SPDX-License-Identifier: Apache-2.0
// RunSample: sampling over rows with features, on guarded memory and poisoned outputs, and what
// came of each row. It compares nothing but that sampling leaves the rows' history alone.
#ifndef REPRISE_TESTS_KERNELS_SAMPLE_RUN_H_
#define REPRISE_TESTS_KERNELS_SAMPLE_RUN_H_

#include <cstdint>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/sample/sample.h"
#include "runtime/device.h"
#include "tests/testing/sample_oracle.h"

namespace reprise::testing {

// What sampling made of one row.
struct SampleOutcome {
  uint32_t token = 0;
  float logprob = 0.0f;
  kernels::SampleCut cut = {};
  std::vector<float> adjusted = {};    // of rows that adjust their logits
  kernels::LogprobReport report = {};  // of rows with num_logprobs
  std::vector<float> logits = {};      // of rows with return_logits
};

// One step in which each of `rows` samples one token; all have logits over the same vocabulary. The
// rows lie in random slots, one of which stays empty. Outcomes in the order of `rows`; failures are
// recorded.
std::vector<SampleOutcome> RunSample(runtime::Device& device, runtime::Stream& stream,
                                     const kernels::KernelSet& kernels,
                                     const std::vector<SampleRow>& rows);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_SAMPLE_RUN_H_
