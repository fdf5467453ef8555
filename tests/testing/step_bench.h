// SPDX-License-Identifier: Apache-2.0
// StepBench: fetch, plan and publish with all their device memory and both rings, beside what they
// must leave there. Every array of the device is mirrored whole: a step overwrites what it must,
// and every other word has to stay as it was.
#ifndef REPRISE_TESTS_TESTING_STEP_BENCH_H_
#define REPRISE_TESTS_TESTING_STEP_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/step/cases.h"
#include "kernels/step/step_args.h"
#include "runtime/buffer.h"
#include "runtime/device.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/number.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {

// A random life of rows: added with a context or without, continued with given tokens or the last
// sampled one, extended by blocks, dropped and added again. Every step that it makes is valid.
class RandomSteps {
 public:
  RandomSteps(const kernels::StepCase& c, uint64_t seed);
  // `rows` as they will be when the step runs; last_token decides nothing.
  OracleStep Next(const OracleRows& rows);

 private:
  void AddRow(uint32_t slot, uint32_t budget, const OracleRows& rows, OracleStep& step);
  void GiveBlocks(uint32_t slot, uint32_t length, OracleStep& step);

  const kernels::StepCase& c_;
  Random random_;
  std::vector<bool> live_, sampled_;  // by slot
  std::vector<uint32_t> num_blocks_;  // by slot: in the table
};

class StepBench {
 public:
  StepBench(runtime::Device& device, runtime::Stream& stream, const kernels::KernelSet& kernels,
            const kernels::StepCase& c);

  // Writes the slot of step `sequence`.
  void Write(uint64_t sequence, const OracleStep& step);
  // What sampling would have left for publish: the same for all steps from here on.
  void SetSampled(const std::vector<uint32_t>& token, const std::vector<float>& logprob);
  // Enqueues the three nodes.
  void Launch();
  // Waits, then EXPECTs all device memory and the result ring to equal the mirror.
  void Check();

  // Move the mirror on: by a step, or by a replay that finds no step.
  void ExpectStep(const OracleStep& step);
  void ExpectIdle();

  const OracleRows& rows() const { return rows_; }
  uint64_t count() const { return count_; }

 private:
  struct Mirror {
    std::vector<kernels::RowEntry> entries;
    std::vector<uint32_t> given_tokens, query_start, context_before;
    std::vector<uint32_t> token_id, token_position, token_block, token_offset;
    std::vector<uint32_t> sampled_entry, sampled_token;
    std::vector<kernels::AttentionItem> decode_items, prefill_items;
    kernels::PlanCounts counts;
    std::vector<std::byte> ring;
  };
  void CheckPlan();
  void CheckRows();
  void CheckResults();

  const kernels::StepCase& c_;
  runtime::Device& device_;
  runtime::Stream& stream_;
  const kernels::KernelSet& kernels_;
  GuardedMemory memory_;
  runtime::MappedBuffer step_ring_, result_ring_;
  kernels::FetchArgs fetch_;
  kernels::PlanArgs plan_;
  kernels::PublishArgs publish_;

  OracleRows rows_;
  uint64_t count_ = 0;
  std::vector<uint32_t> sampled_token_;
  std::vector<float> sampled_logprob_;
  Mirror mirror_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_STEP_BENCH_H_
