// SPDX-License-Identifier: Apache-2.0
// StepDraft: a step request with arrays of its own, for callers that plan a step piece by piece.
//
//   StepDraft draft;
//   draft.chunks.push_back({.row = 1, .tokens = {5, 9, 2}});
//   engine.Submit(DraftView(draft, session, sequence).request());
#ifndef REPRISE_ENGINE_STEP_DRAFT_H_
#define REPRISE_ENGINE_STEP_DRAFT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/session_info.h"
#include "engine/step_request.h"

namespace reprise::engine {

// The fields mean what those of StepRequest mean.
struct StepDraft {
  struct Add {
    uint32_t row = 0;
    std::vector<uint32_t> blocks = {};
    uint32_t context_length = 0;
    SamplingParams sampling = {};  // views lists that outlive the draft
    std::vector<uint32_t> history = {};
    uint32_t prompt_length = 0;
    std::optional<uint32_t> fork_of = {};
    std::optional<uint32_t> swapped_state = {};
  };
  struct Append {
    uint32_t row = 0;
    std::vector<uint32_t> blocks = {};
  };
  struct Mask {
    uint32_t row = 0;
    std::vector<std::byte> allowed_tokens = {};
  };
  struct Prefix {
    uint32_t group = 0;
    uint32_t num_blocks = 0;
    std::vector<uint32_t> rows = {};
  };
  struct Chunk {
    uint32_t row = 0;
    std::vector<uint32_t> tokens = {};
    bool sample = true;  // most prompts are one chunk
    bool prompt_logprobs = false;
    std::optional<uint32_t> next_token = {};
  };

  struct Draft {
    uint32_t row = 0;
    std::vector<uint32_t> tokens = {};
  };

  std::vector<uint32_t> drop = {};
  std::vector<Add> add = {};
  std::vector<Append> append = {};
  std::vector<Chunk> chunks = {};
  std::vector<uint32_t> continue_rows = {};
  bool continue_all = false;
  ExecutionMode mode = ExecutionMode::kReplay;
  std::vector<Mask> masks = {};
  std::vector<Prefix> prefixes = {};
  uint32_t num_steps = 1;
  bool isolate_bad_rows = false;
  std::vector<BlockCopy> copies = {};
  std::vector<Draft> drafts = {};
};

// The request that a draft stands for. Valid as long as the draft is, unchanged.
class DraftView {
 public:
  DraftView(const StepDraft& draft, const SessionInfo& session, uint64_t sequence);
  DraftView(const DraftView&) = delete;
  DraftView& operator=(const DraftView&) = delete;
  const StepRequest& request() const { return request_; }
  StepRequest& request() { return request_; }

 private:
  std::vector<RowAdd> add_;
  std::vector<RowAppend> append_;
  std::vector<RowChunk> chunks_;
  std::vector<RowMask> masks_;
  std::vector<PrefixGroup> prefixes_;
  std::vector<RowDraft> drafts_;
  StepRequest request_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_DRAFT_H_
