// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/random_steps.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace reprise::testing {
namespace {

using kernels::RowEntry;
using kernels::RowSampling;
using kernels::SamplingUpdate;
using kernels::SamplingUpdateKind;
using kernels::StepCase;
using kernels::TableUpdate;

// What drafts and samples often agree on.
constexpr uint32_t kExpectedToken = 4;

constexpr uint32_t RoundUpTo4(uint32_t words) { return (words + 3) / 4 * 4; }
uint32_t Capacity(const StepCase& c) { return c.max_blocks_per_row * c.block_size; }
uint32_t MaskWords(const StepCase& c) { return (c.vocab + 31) / 32; }

uint32_t RandomToken(const StepCase& c, Random& random) {
  if (c.vocab == 0) return random.Below(1u << 17);
  return random.Below(random.Below(4) == 0 ? c.vocab : std::min(c.vocab, 12u));
}

}  // namespace

RandomSteps::RandomSteps(const StepCase& c, uint64_t seed)
    : c_(c),
      random_(seed),
      live_(c.max_rows),
      sampled_(c.max_rows),
      num_blocks_(c.max_rows),
      written_(c.max_rows) {}

uint32_t RandomSteps::MaxSamplingWords(const StepCase& c) {
  if (c.vocab == 0) return 0;
  const uint32_t of_a_row = sizeof(RowSampling) / 4 + kernels::kMaxStopTokens +
                            2 * kernels::kMaxLogitBias + RoundUpTo4(MaskWords(c)) +
                            RoundUpTo4(1 + Capacity(c));
  return c.max_rows * of_a_row;
}

OracleStep RandomSteps::Next(const OracleRows& rows) {
  OracleStep step;
  uint32_t num_rows = 1 + random_.Below(c_.max_rows);
  num_rows = std::min(num_rows, c_.max_step_tokens);
  prompt_logprobs_left_ = c_.max_prompt_logprobs;
  drafts_left_ = c_.max_draft_tokens;
  const std::vector<uint32_t> slots = random_.Permutation(c_.max_rows);
  for (uint32_t i = 0; i < num_rows; ++i) {
    const uint32_t left = c_.max_step_tokens - step.num_tokens();
    AddRow(slots[i], left - (num_rows - 1 - i), rows, step);  // the others need a token each
  }
  // Parameters may come without their row.
  for (uint32_t i = num_rows; i < c_.max_rows; ++i)
    if (random_.Below(8) == 0) UpdateSampling(slots[i], 3, false, step);
  if (c_.tile_members != 0) AddPrefixes(step);
  return step;
}

OracleStep RandomSteps::Repeat(const OracleStep& first) {
  OracleStep step;
  for (const RowEntry& run : first.rows) {
    if ((run.flags & kernels::kRowSample) == 0) continue;
    RowEntry entry;
    entry.slot = run.slot;
    entry.num_tokens = 1;
    entry.flags = kernels::kRowSample | kernels::kRowPauses;
    entry.context_length = num_blocks_[run.slot] * c_.block_size;
    if (c_.vocab != 0 && random_.Below(4) == 0)
      entry.flags |= random_.Below(256) << kernels::kRowFeatureShift;  // nobody asks for these
    step.rows.push_back(entry);
  }
  if (c_.tile_members != 0) AddPrefixes(step);
  return step;
}

// Three groups, one of them large, with prefixes that many rows are too short for.
void RandomSteps::AddPrefixes(OracleStep& step) {
  constexpr uint32_t kGroups = 3;
  std::vector<uint32_t> of_group[kGroups];
  for (uint32_t e = 0; e < step.rows.size(); ++e) {
    const uint32_t group = random_.Below(8);
    if (group < 7) of_group[group < kGroups ? group : 0].push_back(e);
  }
  for (const std::vector<uint32_t>& rows : of_group) {
    const uint32_t tokens = (1 + random_.Below(c_.max_blocks_per_row / 2)) * c_.block_size;
    const auto count = static_cast<uint32_t>(rows.size());
    for (uint32_t i = 0; i < count; ++i)
      step.prefix_members.push_back(
          {.entry = rows[i], .tokens = tokens, .index = i, .count = count});
  }
}

void RandomSteps::AddRow(uint32_t slot, uint32_t budget, const OracleRows& rows, OracleStep& step) {
  const uint32_t capacity = Capacity(c_);
  RowEntry entry;
  entry.slot = slot;
  uint32_t before = live_[slot] ? rows.context_length[slot] : 0;
  const bool stopped = live_[slot] && rows.life[slot].finish != kernels::FinishReason::kNone;
  if (!live_[slot] || before >= capacity || random_.Below(stopped ? 3 : 8) == 0) {
    entry.flags |= kernels::kRowReset;
    entry.context_length = before = random_.Below(3) == 0 ? 0 : random_.Below(capacity);
    entry.temperature = static_cast<float>(random_.Below(3)) * 0.5f;
    entry.seed = random_.Bits();
    live_[slot] = true;
    sampled_[slot] = false;
    num_blocks_[slot] = 0;
  }
  GiveFeatures(slot, entry, step);
  entry.num_tokens = 1;
  if (!sampled_[slot] || random_.Below(4) == 0)
    GiveTokens(std::min(budget, capacity - before), entry, step);
  const bool drafts = GiveDrafts(std::min(budget, capacity - before) - 1, entry, step);
  bool pauses = false;
  if ((entry.flags & kernels::kRowReset) == 0 && random_.Below(4) == 0) {
    entry.flags |= kernels::kRowPauses;
    entry.context_length = before + random_.Below(2 * entry.num_tokens + 1);
    pauses = entry.context_length < before + entry.num_tokens;
  }
  if (drafts || random_.Below(4) != 0) {
    entry.flags |= kernels::kRowSample;
    sampled_[slot] = sampled_[slot] || !pauses;
  }
  GiveBlocks(slot, before + entry.num_tokens, step);
  step.rows.push_back(entry);
}

void RandomSteps::GiveTokens(uint32_t most, RowEntry& entry, OracleStep& step) {
  entry.flags |= kernels::kRowTokensGiven;
  if (random_.Below(2) == 0) entry.num_tokens = 1 + random_.Below(most);
  entry.given_offset = static_cast<uint32_t>(step.given_tokens.size());
  for (uint32_t i = 0; i < entry.num_tokens; ++i) step.given_tokens.push_back(Token());
  if (c_.max_prompt_logprobs == 0) return;
  const bool next = random_.Below(3) == 0;
  if (next) {
    entry.flags |= kernels::kRowNextGiven;
    step.given_tokens.push_back(Token());
  }
  const uint32_t asked = entry.num_tokens - (next ? 0 : 1);
  if (asked > prompt_logprobs_left_ || random_.Below(4) == 0) return;
  entry.flags |= kernels::kRowPromptLogprobs;
  prompt_logprobs_left_ -= asked;
}

bool RandomSteps::GiveDrafts(uint32_t most, RowEntry& entry, OracleStep& step) {
  most = std::min(most, drafts_left_);
  if ((entry.flags & kernels::kRowTokensGiven) != 0 || most == 0 || random_.Below(3) == 0)
    return false;
  const uint32_t count = 1 + random_.Below(most);
  entry.num_tokens += count;
  entry.given_offset = static_cast<uint32_t>(step.given_tokens.size());
  for (uint32_t i = 0; i < count; ++i)
    step.given_tokens.push_back(random_.Below(3) != 0 ? kExpectedToken : Token());
  drafts_left_ -= count;
  return true;
}

// As many blocks as the length needs, now and then some ahead, in one update or in two.
void RandomSteps::GiveBlocks(uint32_t slot, uint32_t length, OracleStep& step) {
  uint32_t wanted = (length + c_.block_size - 1) / c_.block_size;
  wanted = std::min(wanted + random_.Below(3), c_.max_blocks_per_row);
  const uint32_t middle = num_blocks_[slot] + (wanted - std::min(wanted, num_blocks_[slot])) / 2;
  for (const uint32_t end : {middle, wanted}) {
    if (end <= num_blocks_[slot]) continue;
    TableUpdate update;
    update.slot = slot;
    update.first = num_blocks_[slot];
    update.count = end - num_blocks_[slot];
    update.offset = static_cast<uint32_t>(step.blocks.size());
    for (uint32_t i = 0; i < update.count; ++i) step.blocks.push_back(1 + random_.Below(1u << 20));
    step.table_updates.push_back(update);
    num_blocks_[slot] = end;
  }
}

void RandomSteps::GiveFeatures(uint32_t slot, RowEntry& entry, OracleStep& step) {
  if (c_.vocab == 0) return;
  const bool fresh = (entry.flags & kernels::kRowReset) != 0;
  if (fresh || random_.Below(6) == 0) UpdateSampling(slot, fresh ? 2 : 4, fresh, step);
  if (fresh || random_.Below(4) == 0) {
    if (!fresh) entry.flags |= kernels::kRowFeatures;
    entry.flags |= RandomFeatures(slot) << kernels::kRowFeatureShift;
  } else if (random_.Below(4) == 0) {
    entry.flags |= random_.Below(256) << kernels::kRowFeatureShift;  // nobody asks for these
  }
}

void RandomSteps::UpdateSampling(uint32_t slot, uint32_t odds, bool fresh, OracleStep& step) {
  if (c_.vocab == 0) return;
  // Stop tokens first: RowSampling counts them.
  for (const SamplingUpdateKind kind :
       {kernels::kUpdateStop, kernels::kUpdateSampling, kernels::kUpdateBias, kernels::kUpdateMask,
        kernels::kUpdateHistory}) {
    if (!c_.adjust_logits && kind >= kernels::kUpdateBias) break;
    if (random_.Below(odds) != 0) continue;
    const std::vector<uint32_t> data = DataOf(kind, fresh, written_[slot]);
    written_[slot].kind[kind] = true;
    SamplingUpdate update;
    update.slot = slot;
    update.kind = kind;
    update.count = static_cast<uint32_t>(data.size());
    update.offset = RoundUpTo4(static_cast<uint32_t>(step.sampling_data.size()));
    step.sampling_data.resize(update.offset, 0xeeeeeeeeu);
    step.sampling_data.insert(step.sampling_data.end(), data.begin(), data.end());
    step.sampling_updates.push_back(update);
  }
}

std::vector<uint32_t> RandomSteps::DataOf(SamplingUpdateKind kind, bool fresh, Written& written) {
  if (kind == kernels::kUpdateSampling) return RandomSampling(fresh, written);
  if (kind == kernels::kUpdateBias)
    return Words(2 * (1 + random_.Below(std::min(c_.vocab, kernels::kMaxLogitBias))));
  if (kind == kernels::kUpdateMask) return Words(MaskWords(c_));
  std::vector<uint32_t> data;
  uint32_t num_tokens = random_.Below(1 + Capacity(c_));
  if (kind == kernels::kUpdateStop) {
    num_tokens = 1 + random_.Below(random_.Below(5) == 0 ? kernels::kMaxStopTokens : 3);
    written.num_stop = std::max(written.num_stop, num_tokens);
  } else {
    data.push_back(random_.Below(3) == 0 ? 0 : 1 + random_.Below(Capacity(c_)));
  }
  for (uint32_t i = 0; i < num_tokens; ++i) data.push_back(Token());
  return data;
}

std::vector<uint32_t> RandomSteps::RandomSampling(bool fresh, Written& written) {
  RowSampling sampling;
  sampling.top_k = random_.Below(1000);
  sampling.top_p = static_cast<float>(random_.Uniform());
  sampling.log_min_p = -std::numeric_limits<float>::infinity();
  sampling.repetition = static_cast<float>(0.5 + random_.Uniform());
  sampling.presence = static_cast<float>(random_.Normal());
  sampling.frequency = static_cast<float>(random_.Normal());
  sampling.max_new_tokens = random_.Below(2) == 0 ? 0 : 1 + random_.Below(6);
  // A row keeps its stop tokens out from its first token on or never.
  if (fresh) written.min_tokens = c_.adjust_logits && random_.Below(2) == 0;
  sampling.min_tokens = written.min_tokens ? 1 + random_.Below(3) : 0;
  sampling.num_stop = random_.Below(written.num_stop + 1);
  sampling.num_bias = random_.Below(kernels::kMaxLogitBias);
  sampling.num_logprobs = random_.Below(kernels::kMaxTopLogprobs);
  sampling.prompt_length = random_.Below(3) == 0 ? 0 : 1 + random_.Below(Capacity(c_));
  const auto words = std::bit_cast<std::array<uint32_t, sizeof(RowSampling) / 4>>(sampling);
  return {words.begin(), words.end()};
}

uint32_t RandomSteps::RandomFeatures(uint32_t slot) {
  const Written& written = written_[slot];
  uint32_t possible = 0;
  if (written.kind[kernels::kUpdateSampling]) {
    possible |= kernels::kFeatureStop | kernels::kFeatureTruncate | kernels::kFeatureLogprobs |
                kernels::kFeatureLogits;
    if (written.kind[kernels::kUpdateHistory]) possible |= kernels::kFeaturePenalties;
    if (written.kind[kernels::kUpdateBias]) possible |= kernels::kFeatureBias;
  }
  if (written.kind[kernels::kUpdateMask]) possible |= kernels::kFeatureMask;
  uint32_t features = (random_.Below(256) | random_.Below(256)) & possible;
  if (written.min_tokens && (features & kernels::kFeatureStop) != 0)
    features |= kernels::kFeatureMinTokens;
  return features;
}

uint32_t RandomSteps::Token() { return RandomToken(c_, random_); }

std::vector<uint32_t> RandomSteps::Words(uint32_t n) {
  std::vector<uint32_t> words(n);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random_.Bits());
  return words;
}

void RandomSampled(const StepCase& c, Random& random, std::vector<uint32_t>* token,
                   std::vector<float>* logprob) {
  const uint32_t most = c.max_rows + c.max_draft_tokens;
  token->resize(most);
  logprob->resize(most);
  for (uint32_t s = 0; s < most; ++s) {
    const bool none = random.Below(16) == 0;
    const bool expected = c.max_draft_tokens != 0 && random.Below(2) == 0;
    (*token)[s] = none ? kernels::kNoCandidate : expected ? kExpectedToken : RandomToken(c, random);
    (*logprob)[s] =
        none ? std::numeric_limits<float>::quiet_NaN() : -static_cast<float>(random.Uniform());
  }
}

}  // namespace reprise::testing
