// SPDX-License-Identifier: Apache-2.0
// RunSample: one launch of sampling over rows with features and prompt tokens, with all the
// device memory that it reads and writes and the result ring. Compares nothing with a reference:
// that is sample_oracle.h. But it EXPECTs that nothing is written that nobody asked for.
#ifndef REPRISE_TESTS_KERNELS_SAMPLE_RUN_H_
#define REPRISE_TESTS_KERNELS_SAMPLE_RUN_H_

#include <cstdint>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/sample/sample_args.h"
#include "runtime/device.h"
#include "tests/testing/sample_oracle.h"

namespace reprise::testing {

// A given token whose likelihood is asked for.
struct PromptRow {
  static constexpr uint32_t kOwnRow = 0xffffffffu;

  std::vector<double> logits;
  uint32_t target = 0;
  // The sampled row in whose chunk it lies; kOwnRow: one that does not sample.
  uint32_t sampled = kOwnRow;
  uint32_t num_logprobs = 0;  // of a row of its own
};

struct SampleOutcome {
  uint32_t token = 0;
  float logprob = 0.0f;
  kernels::SampleCut cut = {};
  std::vector<float> adjusted = {};    // of rows that adjust
  kernels::LogprobReport report = {};  // of rows with num_logprobs
  std::vector<float> logits = {};      // of rows with return_logits
};

struct SampleOutcomes {
  std::vector<SampleOutcome> rows;
  std::vector<kernels::LogprobReport> prompt;
};

// All rows have one vocabulary. REQUIRES: a row or a prompt token.
SampleOutcomes RunSample(runtime::Device& device, runtime::Stream& stream,
                         const kernels::KernelSet& kernels, const std::vector<SampleRow>& rows,
                         const std::vector<PromptRow>& prompt = {});

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_SAMPLE_RUN_H_
