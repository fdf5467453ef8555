// SPDX-License-Identifier: Apache-2.0
// What fetch, plan and publish must do, in plain C++ from kernels/step/*.h and docs/wire.md, row by
// row and token by token: resident rows, the plan of a step, its results. Shares the layouts with
// the kernels, which are the contract, and no code.
#ifndef REPRISE_TESTS_TESTING_STEP_ORACLE_H_
#define REPRISE_TESTS_TESTING_STEP_ORACLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/attention/plan.h"
#include "kernels/step/ring.h"
#include "kernels/step/rows.h"

namespace reprise::testing {

// The rows that stay on the device. Never-written words hold kNever, as poisoned device memory
// does.
struct OracleRows {
  static constexpr uint32_t kNever = 0xffffffffu;

  // vocab 0: no row has features.
  OracleRows(uint32_t max_rows, uint32_t max_blocks_per_row, uint32_t vocab);

  std::vector<uint32_t> context_length, last_token;
  std::vector<float> temperature;  // never-written: NaN
  std::vector<uint64_t> seed;
  std::vector<kernels::RowLife> life;
  std::vector<uint32_t> block_table;  // [max_rows, max_blocks_per_row]
  uint32_t max_blocks_per_row = 0;
  // Of rows with features.
  std::vector<kernels::RowSampling> sampling;
  std::vector<uint32_t> stop_token;      // [max_rows, kMaxStopTokens]
  std::vector<kernels::LogitBias> bias;  // [max_rows, kMaxLogitBias]
  std::vector<uint32_t> mask;            // [max_rows, vocab / 32 rounded up]
  std::vector<uint32_t> history;         // [max_rows, vocab]
  uint32_t vocab = 0;
};

// What the host puts into a ring entry.
struct OracleStep {
  std::vector<kernels::RowEntry> rows;
  std::vector<uint32_t> given_tokens;
  std::vector<kernels::TableUpdate> table_updates;
  std::vector<uint32_t> blocks;
  std::vector<kernels::SamplingUpdate> sampling_updates;
  std::vector<uint32_t> sampling_data;
  std::vector<kernels::PrefixMember> prefix_members;

  uint32_t num_tokens() const;
};

struct OraclePlan {
  // Of a place in logits_place whose row does not return its logits.
  static constexpr uint32_t kAnyPlace = 0xfffffffeu;

  std::vector<kernels::RowEntry> entries;
  std::vector<uint32_t> query_start, context_before;
  std::vector<uint32_t> token_id, token_position, token_block, token_offset;
  std::vector<uint32_t> sampled_entry, sampled_token, logits_place;
  std::vector<uint32_t> prompt_entry, prompt_target;
  std::vector<uint32_t> attention_leaf;  // of every entry
  uint32_t batch_leaf = 0;
  std::vector<kernels::AttentionWorkItem> decode_items, prefill_items;
  std::vector<kernels::DecodeRow> decode_rows;  // of every entry, then of tiles
  std::vector<uint32_t> prefix_members;
  std::vector<kernels::DecodeShare> decode_shares;
};

// The attention work of one row, appended. `entry` is its index in the step, `row` the resident
// row. split, prefill_q_tokens: of that row.
void AddAttentionItems(uint32_t entry, uint32_t row, uint32_t context_before, uint32_t num_tokens,
                       const kernels::SplitRule& split, uint32_t prefill_q_tokens, uint32_t window,
                       OraclePlan& plan);
// The same of a row of several query tokens whose KV is cut into `prompt_splits` at most.
void AddPromptSplits(uint32_t entry, uint32_t row, uint32_t context_before, uint32_t num_tokens,
                     const kernels::SplitRule& split, uint32_t prompt_splits, uint32_t window,
                     OraclePlan& plan);

// What the tree comes to for a step: attention_leaf and batch_leaf. num_tokens: of every entry;
// plan: has context_before.
void WalkTree(const kernels::AttentionTree& tree, uint32_t window,
              const std::vector<uint32_t>& num_tokens, OraclePlan& plan);

// The deal of the rows of one query token: decode_rows, one per entry and tile, prefix_members and
// decode_shares. num_tokens, slot: of every entry; members: of the step's prefixes; plan: has
// query_start, context_before and leaves.
void AddDecodeDeal(const kernels::AttentionPlanRule& rule, const kernels::AttentionTree& tree,
                   const std::vector<uint32_t>& num_tokens, const std::vector<uint32_t>& slot,
                   const std::vector<kernels::PrefixMember>& members, OraclePlan& plan);

// Fetch + plan: updates `rows` (tables, sampling parameters, initial states, histories). A deal is
// there if rule.num_shares is not 0, decode items if it is. Attention's lists are those of the
// rule's first window, here and above.
OraclePlan PlanStep(const OracleStep& step, uint32_t block_size,
                    const kernels::AttentionPlanRule& rule, const kernels::AttentionTree& tree,
                    OracleRows& rows);

// Publish: updates `rows`, returns what goes to the result ring. token, logprob: one per sampled
// token; kNoCandidate where none could be sampled. sampled: what of it is reported of rows with
// drafts, by sampled token.
std::vector<kernels::RowResult> PublishStep(const OraclePlan& plan,
                                            const std::vector<uint32_t>& token,
                                            const std::vector<float>& logprob, OracleRows& rows,
                                            std::map<size_t, kernels::SampledToken>* sampled);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_STEP_ORACLE_H_
