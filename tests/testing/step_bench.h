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
#include "kernels/plan/plan_args.h"
#include "kernels/step/fetch_args.h"
#include "kernels/step/publish_args.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "tests/testing/cases/step_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {

class StepBench {
 public:
  StepBench(runtime::Device& device, runtime::Stream& stream, const kernels::KernelSet& kernels,
            const kernels::StepCase& c);

  // Writes the ring entry of the request that comes next, as that of a step or of `num_replays`, of
  // which later ones run `repeat`. sequence: of its first replay.
  void Write(uint64_t sequence, const OracleStep& step, uint32_t num_replays = 1,
             const OracleStep& repeat = {});
  // What sampling would have left for publish: the same for all steps from here on.
  void SetSampled(const std::vector<uint32_t>& token, const std::vector<float>& logprob);
  // Enqueues the three nodes.
  void Launch();
  // Waits, then EXPECTs all device memory and the result ring to equal the mirror.
  void Check();

  // Move the mirror on: by replay `replay` of `num_replays` of a request, or by one that finds no
  // step.
  void ExpectStep(const OracleStep& step, uint32_t replay = 0, uint32_t num_replays = 1);
  void ExpectIdle();

  const OracleRows& rows() const { return rows_; }
  // Replays that have published.
  uint64_t count() const { return count_; }

 private:
  // Of kernels::AttentionLists.
  struct Lists {
    std::vector<kernels::AttentionWorkItem> decode_items, prefill_items;
    std::vector<kernels::DecodeRow> decode_rows;
    std::vector<kernels::DecodeShare> decode_shares;
    std::vector<uint32_t> members;
  };
  struct Mirror {
    std::vector<kernels::RowEntry> given_rows, entries;
    std::vector<uint32_t> given_tokens, query_start, context_before;
    std::vector<uint32_t> token_id, token_position, token_block, token_offset;
    std::vector<uint32_t> sampled_entry, sampled_token, logits_place, prompt_entry, prompt_target;
    std::vector<uint32_t> attention_leaf;
    std::vector<kernels::PrefixMember> prefix;
    Lists lists[kernels::kMaxAttentionWindows];
    kernels::PlanCounts counts;
    kernels::StepProgress progress;
    std::vector<std::byte> ring;
  };
  template <typename T>
  T* Make(size_t n, std::vector<T>& mirror);
  // Writes the part of a ring entry that begins at `entry`.
  void WritePart(const kernels::StepHeader& header, const OracleStep& step, uint64_t members_offset,
                 std::byte* entry);
  kernels::StepPlan MakePlan();
  kernels::AttentionLists MakeLists(Lists& mirror);
  kernels::ResidentRows MakeRows();
  // By one window of the rule.
  kernels::AttentionPlanRule RuleOf(uint32_t window) const;
  void ExpectLists(uint32_t window, const OraclePlan& plan);
  void CheckPlan();
  void CheckLists(uint32_t window);
  void CheckLogitsPlace();
  void CheckRows();
  void CheckSampling();
  void CheckResults();

  const kernels::StepCase& c_;
  runtime::Stream& stream_;
  const kernels::KernelSet& kernels_;
  GuardedMemory memory_;
  runtime::MappedBuffer step_ring_, result_ring_;
  kernels::FetchArgs fetch_;
  kernels::PlanArgs plan_;
  kernels::PublishArgs publish_;

  OracleRows rows_;
  uint64_t count_ = 0;     // replays
  uint64_t requests_ = 0;  // whose replays are over
  std::vector<uint32_t> sampled_token_;
  std::vector<float> sampled_logprob_;
  Mirror mirror_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_STEP_BENCH_H_
