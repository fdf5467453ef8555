// SPDX-License-Identifier: Apache-2.0
#include "engine/step_draft.h"

namespace reprise::engine {

DraftView::DraftView(const StepDraft& draft, const SessionInfo& session, uint64_t sequence) {
  for (const StepDraft::Add& add : draft.add) {
    add_.push_back({.row = add.row,
                    .sampling = add.sampling,
                    .context_length = add.context_length,
                    .blocks = add.blocks,
                    .history = add.history,
                    .prompt_length = add.prompt_length,
                    .fork_of = add.fork_of,
                    .swapped_state = add.swapped_state});
  }
  for (const StepDraft::Append& append : draft.append)
    append_.push_back({.row = append.row, .blocks = append.blocks});
  for (const StepDraft::Chunk& chunk : draft.chunks) {
    chunks_.push_back({.row = chunk.row,
                       .sample = chunk.sample,
                       .tokens = chunk.tokens,
                       .prompt_logprobs = chunk.prompt_logprobs,
                       .next_token = chunk.next_token});
  }
  for (const StepDraft::Mask& mask : draft.masks)
    masks_.push_back({.row = mask.row, .allowed_tokens = mask.allowed_tokens});
  for (const StepDraft::Prefix& prefix : draft.prefixes)
    prefixes_.push_back(
        {.group = prefix.group, .num_blocks = prefix.num_blocks, .rows = prefix.rows});
  for (const StepDraft::Draft& row : draft.drafts)
    drafts_.push_back({.row = row.row, .tokens = row.tokens});
  request_ = {.session = session.id,
              .epoch = session.epoch,
              .sequence = sequence,
              .drop = draft.drop,
              .copies = draft.copies,
              .add = add_,
              .append = append_,
              .masks = masks_,
              .prefixes = prefixes_,
              .chunks = chunks_,
              .continue_rows = draft.continue_rows,
              .continue_all = draft.continue_all,
              .drafts = drafts_,
              .mode = draft.mode,
              .num_steps = draft.num_steps,
              .isolate_bad_rows = draft.isolate_bad_rows};
}

}  // namespace reprise::engine
