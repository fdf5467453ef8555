// SPDX-License-Identifier: Apache-2.0
// What lies in device memory between the nodes of a step: the rows that stay from step to step, and
// the plan of the step in flight, which every other kernel reads.
#ifndef REPRISE_KERNELS_STEP_ROWS_H_
#define REPRISE_KERNELS_STEP_ROWS_H_

#include <cstdint>

#include "kernels/attention/plan.h"
#include "kernels/step/finish_reason.h"
#include "kernels/step/ring.h"

namespace reprise::kernels {

// What of a row changes as it runs.
struct alignas(16) RowLife {
  uint32_t features;    // RowFeatures
  uint32_t generated;   // tokens sampled since the row was added
  FinishReason finish;  // a row that has stopped does nothing
  uint32_t reserved;
};
static_assert(sizeof(RowLife) == 16);

// A row that runs, as it stands before the step: what the plan keeps of it.
struct RunningRow {
  uint32_t slot, flags, given_offset;
  uint32_t num_tokens;      // 0: it has stopped, or pauses
  uint32_t context_before;  // KV tokens
};

// The token history of a row: per token how often it was sampled, and whether the prompt has it.
constexpr uint32_t kHistoryPrompt = 1u << 31;
constexpr uint32_t kHistoryCount = kHistoryPrompt - 1;

// Resident rows, structure of arrays, [max_rows] each.
struct ResidentRows {
  uint32_t* context_length = nullptr;
  uint32_t* last_token = nullptr;
  float* temperature = nullptr;
  uint64_t* seed = nullptr;
  uint32_t* block_table = nullptr;  // [max_rows, max_blocks_per_row]
  uint32_t max_blocks_per_row = 0;
  RowLife* life = nullptr;
  // Of rows with features.
  RowSampling* sampling = nullptr;
  uint32_t* stop_token = nullptr;  // [max_rows, kMaxStopTokens]
  // Of rows that adjust logits; null where the engine has that switched off.
  LogitBias* bias = nullptr;    // [max_rows, kMaxLogitBias]
  uint32_t* mask = nullptr;     // [max_rows, mask_words] allowed tokens
  uint32_t* history = nullptr;  // [max_rows, vocab] kHistoryPrompt | count
  uint32_t mask_words = 0;
  uint32_t vocab = 0;
};

// Live counts of the step. Every kernel's blocks compare their index with these and leave.
struct PlanCounts {
  uint64_t sequence;  // 0: idle replay
  uint64_t begin_ns;
  uint32_t num_rows;
  uint32_t num_tokens;
  uint32_t num_sampled;                              // tokens: of a row with drafts, several
  uint32_t num_decode_items[kMaxAttentionWindows];   // of StepPlan.attention
  uint32_t num_prefill_items[kMaxAttentionWindows];  // likewise
  uint32_t num_table_updates;
  uint32_t num_prompt_logprobs;  // given tokens whose likelihood is asked for
  uint32_t num_logits;           // rows of logits: num_sampled + num_prompt_logprobs
  uint32_t attention_leaf;       // of AttentionTree.batch that the step came to
  uint32_t num_prefix_members;
  uint32_t replay;       // of its request, from 0
  uint32_t num_replays;  // of that request
};

// What the plan kernel lists, all in device memory. Entries are rows that run, in request order.
struct StepPlan {
  PlanCounts* counts = nullptr;
  RowEntry* given_rows = nullptr;      // [max_rows] staged from the ring
  RowEntry* entries = nullptr;         // [max_rows] the same as they run
  uint32_t* given_tokens = nullptr;    // [max_step_tokens + max_rows] staged from the ring
  PrefixMember* prefix = nullptr;      // [max_rows] staged from the ring
  uint32_t* query_start = nullptr;     // [max_rows + 1]
  uint32_t* context_before = nullptr;  // [max_rows] KV tokens before this step
  uint32_t* token_id = nullptr;        // [max_step_tokens]
  uint32_t* token_position = nullptr;  // [max_step_tokens]
  uint32_t* token_block = nullptr;     // [max_step_tokens] KV block that the token's K and V go to
  uint32_t* token_offset = nullptr;    // [max_step_tokens] and the place in it
  uint32_t* sampled_entry = nullptr;   // [max_rows + max_draft_tokens]
  // [max_rows + max_draft_tokens + max_prompt_logprobs] index of the query token whose logits are
  // wanted: the last of each sampled row, or all of one with drafts, then those of prompt tokens
  uint32_t* sampled_token = nullptr;
  // [max_rows + max_draft_tokens] of sampled rows with kFeatureLogits: which in the result ring
  // entry
  uint32_t* logits_place = nullptr;
  uint32_t* prompt_entry = nullptr;                // [max_prompt_logprobs]
  uint32_t* prompt_target = nullptr;               // [max_prompt_logprobs] the token that followed
  uint32_t* attention_leaf = nullptr;              // [max_rows] of AttentionTree.rows
  AttentionLists attention[kMaxAttentionWindows];  // of AttentionPlanRule.windows
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_ROWS_H_
