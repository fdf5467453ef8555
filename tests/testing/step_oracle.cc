// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/step_oracle.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

namespace reprise::testing {
namespace {

using kernels::AttentionFeature;
using kernels::RowEntry;
using kernels::RowResult;
using kernels::RowSampling;
using kernels::SamplingUpdate;
using kernels::SplitRule;
using kernels::TableUpdate;

template <typename T>
std::vector<T> NeverWritten(size_t n) {
  std::vector<T> v(n);
  if (n != 0) std::memset(static_cast<void*>(v.data()), 0xff, n * sizeof(T));
  return v;
}

constexpr uint32_t FeaturesIn(uint32_t flags) { return flags / (1u << kernels::kRowFeatureShift); }
constexpr uint32_t WithFeatures(uint32_t flags, uint32_t features) {
  constexpr uint32_t kUnit = 1u << kernels::kRowFeatureShift;
  return flags % kUnit + features * kUnit;
}

// A token that the row was given or took over is the prompt's, unless it stands at or behind the
// prompt's end; then the row had sampled it before it was dropped.
void CountToken(uint32_t slot, uint32_t token, uint32_t position, uint32_t prompt_length,
                OracleRows& rows) {
  uint32_t& word = rows.history[size_t{slot} * rows.vocab + token];
  const bool prompts = prompt_length == 0 || position < prompt_length;
  if (!prompts) {
    ++word;
  } else if (word < kernels::kHistoryPrompt) {
    word += kernels::kHistoryPrompt;
  }
}

void ApplyHistory(uint32_t slot, const std::vector<uint32_t>& words, OracleRows& rows) {
  std::fill_n(rows.history.begin() + static_cast<std::ptrdiff_t>(size_t{slot} * rows.vocab),
              rows.vocab, 0);
  for (uint32_t i = 1; i < words.size(); ++i) CountToken(slot, words[i], i - 1, words[0], rows);
}

void ApplyUpdate(const SamplingUpdate& update, const std::vector<uint32_t>& words,
                 OracleRows& rows) {
  const size_t slot = update.slot;
  const auto overwrite = [&](void* to) { std::memcpy(to, words.data(), 4 * words.size()); };
  switch (update.kind) {
    case kernels::kUpdateSampling:
      return overwrite(&rows.sampling[slot]);
    case kernels::kUpdateStop:
      return overwrite(&rows.stop_token[slot * kernels::kMaxStopTokens]);
    case kernels::kUpdateBias:
      return overwrite(&rows.bias[slot * kernels::kMaxLogitBias]);
    case kernels::kUpdateMask:
      return overwrite(&rows.mask[slot * ((rows.vocab + 31) / 32)]);
    default:
      return ApplyHistory(update.slot, words, rows);
  }
}

void Fetch(const OracleStep& step, OracleRows& rows) {
  for (const TableUpdate& u : step.table_updates)
    for (uint32_t i = 0; i < u.count; ++i)
      rows.block_table[size_t{u.slot} * rows.max_blocks_per_row + u.first + i] =
          step.blocks[u.offset + i];
  for (const SamplingUpdate& u : step.sampling_updates) {
    const auto begin = step.sampling_data.begin() + u.offset;
    ApplyUpdate(u, {begin, begin + u.count}, rows);
  }
}

// The row as it runs: with its live features; one that has stopped has nothing to do, nor has one
// that would go beyond the room that the entry says it has.
RowEntry StartRow(const RowEntry& given, OracleRows& rows) {
  RowEntry row = given;
  kernels::RowLife& life = rows.life[row.slot];
  if (row.flags & kernels::kRowReset) {
    rows.context_length[row.slot] = row.context_length;
    rows.temperature[row.slot] = row.temperature;
    rows.seed[row.slot] = row.seed;
    life = {FeaturesIn(given.flags), 0, kernels::FinishReason::kNone, 0};
  } else if (row.flags & kernels::kRowFeatures) {
    life.features = FeaturesIn(given.flags);
  }
  row.flags = WithFeatures(given.flags, life.features);
  const bool may_pause = (given.flags & kernels::kRowPauses) != 0;
  if (may_pause) row.flags -= kernels::kRowPauses;
  if (life.finish != kernels::FinishReason::kNone) {
    row.flags |= kernels::kRowStopped;
  } else if (may_pause && rows.context_length[row.slot] + given.num_tokens > given.context_length) {
    row.flags |= kernels::kRowPauses;
  } else {
    return row;
  }
  row.num_tokens = 0;
  for (const uint32_t wish : {kernels::kRowSample, kernels::kRowPromptLogprobs})
    if (row.flags & wish) row.flags -= wish;
  return row;
}

// Why a row ends with its latest token, which life.generated counts already.
kernels::FinishReason FinishWith(uint32_t token, uint32_t slot, const OracleRows& rows) {
  if (token == kernels::kNoCandidate) return kernels::FinishReason::kNoCandidate;
  const kernels::RowLife& life = rows.life[slot];
  if (!(life.features & kernels::kFeatureStop)) return kernels::FinishReason::kNone;
  const RowSampling& sampling = rows.sampling[slot];
  const uint32_t* stop = &rows.stop_token[size_t{slot} * kernels::kMaxStopTokens];
  const bool early = life.generated <= sampling.min_tokens;
  if (!early && std::count(stop, stop + sampling.num_stop, token) != 0)
    return kernels::FinishReason::kStopToken;
  const bool used_up = sampling.max_new_tokens > 0 && life.generated >= sampling.max_new_tokens;
  return used_up ? kernels::FinishReason::kLength : kernels::FinishReason::kNone;
}

}  // namespace

OracleRows::OracleRows(uint32_t max_rows, uint32_t blocks, uint32_t vocabulary)
    : context_length(max_rows, kNever),
      last_token(max_rows, kNever),
      temperature(max_rows, std::numeric_limits<float>::quiet_NaN()),
      seed(max_rows, ~uint64_t{0}),
      life(max_rows, kernels::RowLife{kNever, kNever, kernels::FinishReason{kNever}, kNever}),
      block_table(size_t{max_rows} * blocks, kNever),
      max_blocks_per_row(blocks),
      vocab(vocabulary) {
  if (vocab == 0) return;
  sampling = NeverWritten<RowSampling>(max_rows);
  stop_token = NeverWritten<uint32_t>(size_t{max_rows} * kernels::kMaxStopTokens);
  bias = NeverWritten<kernels::LogitBias>(size_t{max_rows} * kernels::kMaxLogitBias);
  mask = NeverWritten<uint32_t>(size_t{max_rows} * ((vocab + 31) / 32));
  history = NeverWritten<uint32_t>(size_t{max_rows} * vocab);
}

uint32_t OracleStep::num_tokens() const {
  uint32_t n = 0;
  for (const RowEntry& row : rows) n += row.num_tokens;
  return n;
}

namespace {

// The shortest multiple that cuts the row into at most max_splits pieces, or the least length if
// that is longer.
uint32_t LengthOfSplits(const SplitRule& split, uint32_t tokens) {
  uint32_t length = split.split_multiple;
  while (uint64_t{length} * split.max_splits < tokens) length += split.split_multiple;
  return std::max(length, split.min_split_tokens);
}

}  // namespace

void AddAttentionItems(uint32_t entry, uint32_t row, uint32_t context_before, uint32_t num_tokens,
                       const SplitRule& split, uint32_t prefill_q_tokens, uint32_t window,
                       OraclePlan& plan) {
  // Where the window of the query token at this position begins.
  const auto window_begin = [&](uint32_t position) {
    const int64_t begin = window == 0 ? 0 : int64_t{position} + 1 - window;
    return static_cast<uint32_t>(std::max<int64_t>(0, begin));
  };
  if (num_tokens > 1) {
    for (uint32_t q = 0; q < num_tokens; q += prefill_q_tokens) {
      const uint32_t n = std::min(prefill_q_tokens, num_tokens - q);
      const uint32_t position = context_before + q;
      plan.prefill_items.push_back({entry, q, n, window_begin(position), position + n, 0, 1, row});
    }
    return;
  }
  const uint32_t first = window_begin(context_before);
  const uint32_t kv = context_before + 1 - first;
  const uint32_t length = LengthOfSplits(split, kv);
  const uint32_t first_item = static_cast<uint32_t>(plan.decode_items.size());
  for (uint32_t begin = 0; begin < kv; begin += length)
    plan.decode_items.push_back(
        {entry, 0, 1, first + begin, first + std::min(begin + length, kv), begin / length, 0, row});
  const uint32_t num_splits = static_cast<uint32_t>(plan.decode_items.size()) - first_item;
  for (size_t i = first_item; i < plan.decode_items.size(); ++i)
    plan.decode_items[i].num_splits = num_splits;
}

void AddPromptSplits(uint32_t entry, uint32_t row, uint32_t context_before, uint32_t num_tokens,
                     const SplitRule& split, uint32_t prompt_splits, uint32_t window,
                     OraclePlan& plan) {
  const uint32_t end = context_before + num_tokens;
  const uint32_t hidden =
      window != 0 && context_before + 1 > window ? context_before + 1 - window : 0;
  const uint32_t origin = hidden - hidden % 64;
  const uint32_t least = (split.min_split_tokens + 63) / 64 * 64;
  const uint32_t length = LengthOfSplits({least, prompt_splits, 64}, end - origin);
  const uint32_t count = (end - origin + length - 1) / length;
  for (uint32_t s = 0; s < count; ++s) {
    const uint32_t begin = origin + s * length;
    plan.prefill_items.push_back({entry, 0, num_tokens, std::max(begin, hidden),
                                  std::min(begin + length, end), s, count, row});
  }
}

namespace {

// A leaf, and the weight of all before it.
struct OracleLeaf {
  kernels::DecodePlace place;
  uint64_t begin;
};

// The weight of a leaf, in 16 tokens: 64 tokens begun weigh four, and every leaf `overhead` tokens.
uint32_t WeightOf(uint32_t tokens, uint32_t overhead) {
  return (tokens + 63) / 64 * 4 + overhead / 16;
}

kernels::DecodeRow CutRow(const SplitRule& split, uint32_t kv_begin, uint32_t kv_end) {
  kernels::DecodeRow row{};
  row.kv_begin = kv_begin;
  row.kv_end = kv_end;
  row.origin = kv_begin - kv_begin % 64;
  row.leaf_tokens = LengthOfSplits(split, kv_end - row.origin);
  for (uint32_t begin = row.origin; begin < kv_end; begin += row.leaf_tokens) ++row.num_leaves;
  return row;
}

// Half of the splits are for the prefix, half for what lies behind it.
SplitRule Half(SplitRule split) {
  split.max_splits /= 2;
  return split;
}

// Recursive, and from the definition of a node.
template <typename Choice>
uint32_t Walk(const kernels::ChoiceTree<Choice>& tree, kernels::TreeBranch branch,
              const std::map<AttentionFeature, uint32_t>& features) {
  if (branch.is_leaf()) return branch.index();
  const kernels::TreeNode& node = tree.nodes[branch.index()];
  return Walk(tree, features.at(node.feature) < node.threshold ? node.below : node.at_least,
              features);
}

uint32_t VisibleTokens(uint32_t window, uint32_t before, uint32_t num_tokens) {
  const uint32_t hidden = window != 0 && before + 1 > window ? before + 1 - window : 0;
  return before + num_tokens - hidden;
}

// Of the whole batch.
std::map<AttentionFeature, uint32_t> FeaturesOfBatch(uint32_t window,
                                                     const std::vector<uint32_t>& num_tokens,
                                                     const OraclePlan& plan) {
  std::map<AttentionFeature, uint32_t> features = {
      {AttentionFeature::kBatchRows, static_cast<uint32_t>(num_tokens.size())},
      {AttentionFeature::kDecodeTokens, 0},
      {AttentionFeature::kLongestDecode, 0},
      {AttentionFeature::kPromptTokens, 0}};
  for (size_t e = 0; e < num_tokens.size(); ++e) {
    if (num_tokens[e] > 1) features[AttentionFeature::kPromptTokens] += num_tokens[e];
    if (num_tokens[e] != 1) continue;
    const uint32_t visible = VisibleTokens(window, plan.context_before[e], 1);
    features[AttentionFeature::kDecodeTokens] += visible;
    uint32_t& longest = features[AttentionFeature::kLongestDecode];
    longest = std::max(longest, visible);
  }
  return features;
}

}  // namespace

void WalkTree(const kernels::AttentionTree& tree, uint32_t window,
              const std::vector<uint32_t>& num_tokens, OraclePlan& plan) {
  std::map<AttentionFeature, uint32_t> features = FeaturesOfBatch(window, num_tokens, plan);
  plan.batch_leaf = Walk(tree.batch, tree.batch.root, features);
  plan.attention_leaf.clear();
  for (size_t e = 0; e < num_tokens.size(); ++e) {
    features[AttentionFeature::kVisibleTokens] =
        VisibleTokens(window, plan.context_before[e], num_tokens[e]);
    features[AttentionFeature::kQueryTokens] = num_tokens[e];
    plan.attention_leaf.push_back(Walk(tree.rows, tree.rows.root, features));
  }
}

namespace {

// The prefix of every entry that is read by tiles, cut; num_leaves is 0 where there is none.
std::vector<kernels::DecodeRow> CutPrefixes(const kernels::AttentionPlanRule& rule,
                                            const kernels::AttentionTree& tree,
                                            const std::vector<uint32_t>& num_tokens,
                                            const std::vector<kernels::PrefixMember>& members,
                                            const OraclePlan& plan) {
  std::map<AttentionFeature, uint32_t> features =
      FeaturesOfBatch(rule.windows[0], num_tokens, plan);
  std::vector<kernels::DecodeRow> prefixes(num_tokens.size());
  if (rule.tile_members == 0) return prefixes;
  for (const kernels::PrefixMember& member : members) {
    const uint32_t e = member.entry, tokens = member.tokens - member.tokens % 64;
    const uint32_t position = plan.context_before[e];
    features[AttentionFeature::kVisibleTokens] = tokens;
    features[AttentionFeature::kQueryTokens] = 1;
    const SplitRule& split = tree.rows.leaves[Walk(tree.rows, tree.rows.root, features)].split;
    const SplitRule& own = tree.rows.leaves[plan.attention_leaf[e]].split;
    if (num_tokens[e] == 1 && tokens != 0 && tokens <= position &&
        (rule.windows[0] == 0 || position < rule.windows[0]) && split.max_splits > 1 &&
        own.max_splits > 1)
      prefixes[e] = CutRow(Half(split), 0, tokens);
  }
  return prefixes;
}

// Lists the tiles and their members.
void AddTiles(const kernels::AttentionPlanRule& rule,
              const std::vector<kernels::PrefixMember>& members,
              const std::vector<kernels::DecodeRow>& prefixes, const std::vector<uint32_t>& slot,
              OraclePlan& plan) {
  if (rule.tile_members == 0) return;
  for (uint32_t m = 0; m < members.size(); ++m) {
    const uint32_t e = members[m].entry;
    const bool takes_part = prefixes[e].num_leaves != 0;
    plan.prefix_members.push_back(takes_part ? e : kernels::kNoMember);
    if (members[m].index % rule.tile_members == 0) {
      kernels::DecodeRow& tile = plan.decode_rows.emplace_back();
      tile.query = m;
    }
    kernels::DecodeRow& tile = plan.decode_rows.back();
    if (takes_part && tile.num_leaves == 0) {
      const uint32_t first = tile.query, index = members[first].index;
      tile = prefixes[e];
      tile.row = slot[e];
      tile.query = first;
      tile.num_members =
          static_cast<uint16_t>(std::min(rule.tile_members, members[first].count - index));
    }
  }
}

// How many blocks take part where the tree leaves it to the plan and no tile is dealt.
uint32_t SharesTaking(const kernels::AttentionPlanRule& rule,
                      const std::vector<kernels::DecodeRow>& dealt) {
  uint64_t rows = 0, leaves = 0;  // of every KV head
  bool all_short = true;
  for (const kernels::DecodeRow& row : dealt) {
    if (row.num_leaves == 0) continue;
    rows += rule.num_kv_heads;
    leaves += uint64_t{rule.num_kv_heads} * row.num_leaves;
    all_short &= row.kv_end - row.origin <= 512;
  }
  const uint64_t shares = rule.num_shares;
  if (rows == 0) return rule.num_shares;
  if (leaves <= shares / 4) return rule.num_shares / 4;
  if (rows <= shares && all_short) {
    const bool block_for_each_leaf = rows < leaves && leaves <= shares;
    return block_for_each_leaf ? rule.num_shares : static_cast<uint32_t>(rows);
  }
  for (uint64_t parts = 1; parts <= 128 && parts * rows <= leaves; parts *= 2) {
    // So many parts each; the fewest that all can be dealt with.
    uint64_t each = 1;
    while (each * shares < parts * rows) ++each;
    const uint64_t taking = parts * rows / each;
    if (parts * rows % each == 0 &&
        static_cast<double>(taking) >= 0.9375 * static_cast<double>(shares))
      return static_cast<uint32_t>(taking);
  }
  return rule.num_shares;
}

}  // namespace

void AddDecodeDeal(const kernels::AttentionPlanRule& rule, const kernels::AttentionTree& tree,
                   const std::vector<uint32_t>& num_tokens, const std::vector<uint32_t>& slot,
                   const std::vector<kernels::PrefixMember>& members, OraclePlan& plan) {
  const kernels::BatchChoice& batch = tree.batch.leaves[plan.batch_leaf];
  const std::vector<kernels::DecodeRow> prefixes =
      CutPrefixes(rule, tree, num_tokens, members, plan);
  for (uint32_t e = 0; e < num_tokens.size(); ++e) {
    const SplitRule& split = tree.rows.leaves[plan.attention_leaf[e]].split;
    const uint32_t end = plan.context_before[e] + 1;
    kernels::DecodeRow row;
    if (const kernels::DecodeRow& prefix = prefixes[e]; prefix.num_leaves != 0) {
      row = CutRow(Half(split), prefix.kv_end, end);
      row.first_leaf = static_cast<uint16_t>(prefix.num_leaves);
      row.num_leaves += prefix.num_leaves;
      row.origin -= prefix.num_leaves * row.leaf_tokens;
    } else {
      row = CutRow(split, rule.windows[0] != 0 && end > rule.windows[0] ? end - rule.windows[0] : 0,
                   end);
    }
    row.row = slot[e];
    if (num_tokens[e] != 1) row = {};
    row.query = plan.query_start[e];
    plan.decode_rows.push_back(row);
  }
  AddTiles(rule, members, prefixes, slot, plan);

  std::vector<OracleLeaf> leaves;
  uint64_t weight = 0;
  for (uint32_t e = 0; e < plan.decode_rows.size(); ++e) {
    const kernels::DecodeRow& row = plan.decode_rows[e];
    for (uint32_t head = 0; head < rule.num_kv_heads; ++head) {
      for (uint32_t leaf = row.first_leaf; leaf < row.num_leaves; ++leaf) {
        leaves.push_back({{e, head, leaf - row.first_leaf, 0}, weight});
        const uint32_t begin = row.origin + leaf * row.leaf_tokens;
        weight += WeightOf(std::min(row.leaf_tokens, row.kv_end - begin), batch.leaf_overhead);
      }
    }
  }
  leaves.push_back({{static_cast<uint32_t>(plan.decode_rows.size()), 0, 0, 0}, weight});
  const bool has_tiles =
      std::any_of(plan.decode_rows.begin(), plan.decode_rows.end(),
                  [](const kernels::DecodeRow& row) { return row.num_members != 0; });
  const uint64_t taking = batch.shares != 0 ? batch.shares
                          : has_tiles       ? rule.num_shares
                                            : SharesTaking(rule, plan.decode_rows);
  const auto place = [&](uint32_t share) {
    const uint64_t target = share >= taking ? weight : weight * share / taking;
    return std::find_if(leaves.begin(), leaves.end(),
                        [&](const OracleLeaf& leaf) { return leaf.begin >= target; })
        ->place;
  };
  for (uint32_t s = 0; s < rule.num_shares; ++s) {
    kernels::DecodeShare share{place(s), place(s + 1), {}};
    if (!(share.begin == share.end)) share.row = plan.decode_rows[share.begin.entry];
    plan.decode_shares.push_back(share);
  }
}

namespace {

// Appends the tokens of a row, and what is wanted of them.
void PlanRow(uint32_t e, const OracleStep& step, uint32_t block_size, OracleRows& rows,
             OraclePlan& plan) {
  const RowEntry& row = plan.entries[e];
  const bool given = (row.flags & kernels::kRowTokensGiven) != 0;
  const bool counts = (FeaturesIn(row.flags) & kernels::kFeaturePenalties) != 0;
  for (uint32_t i = 0; i < row.num_tokens; ++i) {
    const uint32_t position = plan.context_before[e] + i;
    const uint32_t token = given    ? step.given_tokens[row.given_offset + i]
                           : i == 0 ? rows.last_token[row.slot]
                                    : step.given_tokens[row.given_offset + i - 1];
    plan.token_id.push_back(token);
    plan.token_position.push_back(position);
    plan.token_block.push_back(
        rows.block_table[size_t{row.slot} * rows.max_blocks_per_row + position / block_size]);
    plan.token_offset.push_back(position % block_size);
    if (given && counts)
      CountToken(row.slot, token, position, rows.sampling[row.slot].prompt_length, rows);
  }
  if (!(row.flags & kernels::kRowSample)) return;
  // A prompt samples behind its last token, a row with drafts behind each.
  for (uint32_t i = given ? row.num_tokens - 1 : 0; i < row.num_tokens; ++i) {
    plan.sampled_entry.push_back(e);
    plan.sampled_token.push_back(plan.query_start[e] + i);
  }
}

// Each given token but the last names the next; the last does where one more is given.
void PlanPromptTokens(uint32_t e, const OracleStep& step, OraclePlan& plan) {
  const RowEntry& row = plan.entries[e];
  if (!(row.flags & kernels::kRowPromptLogprobs)) return;
  for (uint32_t i = 0; i < row.num_tokens; ++i) {
    if (i + 1 == row.num_tokens && !(row.flags & kernels::kRowNextGiven)) break;
    plan.sampled_token.push_back(plan.query_start[e] + i);
    plan.prompt_entry.push_back(e);
    plan.prompt_target.push_back(step.given_tokens[row.given_offset + i + 1]);
  }
}

}  // namespace

OraclePlan PlanStep(const OracleStep& step, uint32_t block_size,
                    const kernels::AttentionPlanRule& rule, const kernels::AttentionTree& tree,
                    OracleRows& rows) {
  Fetch(step, rows);
  OraclePlan plan;
  std::vector<uint32_t> num_tokens, slot;
  for (uint32_t e = 0; e < step.rows.size(); ++e) {
    plan.entries.push_back(StartRow(step.rows[e], rows));
    const RowEntry& row = plan.entries[e];
    num_tokens.push_back(row.num_tokens);
    slot.push_back(row.slot);
    plan.query_start.push_back(static_cast<uint32_t>(plan.token_id.size()));
    plan.context_before.push_back(rows.context_length[row.slot]);
    PlanRow(e, step, block_size, rows, plan);
  }
  WalkTree(tree, rule.windows[0], num_tokens, plan);
  for (uint32_t e = 0; e < num_tokens.size(); ++e) {
    if (num_tokens[e] == 0 || (num_tokens[e] == 1 && rule.num_shares != 0)) continue;
    const kernels::RowChoice& choice = tree.rows.leaves[plan.attention_leaf[e]];
    const uint32_t q_tokens =
        choice.prompt_q_tokens != 0 ? choice.prompt_q_tokens : rule.prefill_q_tokens;
    const uint32_t splits = std::min(choice.prompt_splits, rule.max_splits / num_tokens[e]);
    if (num_tokens[e] > 1 && num_tokens[e] <= q_tokens && splits > 1) {
      AddPromptSplits(e, slot[e], plan.context_before[e], num_tokens[e], choice.split, splits,
                      rule.windows[0], plan);
    } else {
      AddAttentionItems(e, slot[e], plan.context_before[e], num_tokens[e], choice.split, q_tokens,
                        rule.windows[0], plan);
    }
  }
  if (rule.num_shares != 0) AddDecodeDeal(rule, tree, num_tokens, slot, step.prefix_members, plan);
  plan.query_start.push_back(static_cast<uint32_t>(plan.token_id.size()));
  uint32_t place = 0;
  for (size_t s = 0; s < plan.sampled_entry.size(); ++s) {
    const uint32_t e = plan.sampled_entry[s];
    const bool returned = (FeaturesIn(plan.entries[e].flags) & kernels::kFeatureLogits) != 0;
    plan.logits_place.push_back(returned ? place : OraclePlan::kAnyPlace);
    const bool last = s + 1 == plan.sampled_entry.size() || plan.sampled_entry[s + 1] != e;
    place += returned && last ? 1 : 0;
  }
  for (uint32_t e = 0; e < step.rows.size(); ++e) PlanPromptTokens(e, step, plan);
  return plan;
}

std::vector<RowResult> PublishStep(const OraclePlan& plan, const std::vector<uint32_t>& token,
                                   const std::vector<float>& logprob, OracleRows& rows,
                                   std::map<size_t, kernels::SampledToken>* sampled) {
  std::vector<RowResult> results;
  for (uint32_t e = 0; e < plan.entries.size(); ++e) {
    const RowEntry& row = plan.entries[e];
    RowResult& result = results.emplace_back();
    result.context_length = plan.context_before[e] + row.num_tokens;
    rows.context_length[row.slot] = result.context_length;
    if (row.flags & kernels::kRowStopped) result.flags = kernels::kResultStopped;
    if (row.flags & kernels::kRowPauses) result.flags = kernels::kResultPaused;
  }
  size_t s = 0;
  while (s < plan.sampled_entry.size()) {
    const uint32_t e = plan.sampled_entry[s];
    const RowEntry& row = plan.entries[e];
    const bool has_drafts = row.num_tokens > 1 && !(row.flags & kernels::kRowTokensGiven);
    const size_t end = s + (has_drafts ? row.num_tokens : 1);
    RowResult& result = results[e];
    kernels::RowLife& life = rows.life[row.slot];
    // One token after the other, as if each had been a step of its own, for as long as the next
    // draft is what came.
    uint32_t taken = 0;
    for (bool goes_on = true; goes_on; ++s) {
      ++life.generated;
      ++taken;
      life.finish = FinishWith(token[s], row.slot, rows);
      result.token = token[s] == kernels::kNoCandidate ? 0 : token[s];
      result.logprob = logprob[s];
      rows.last_token[row.slot] = result.token;
      if (life.features & kernels::kFeaturePenalties)
        ++rows.history[size_t{row.slot} * rows.vocab + result.token];
      if (has_drafts) (*sampled)[s] = {result.token, result.logprob};
      goes_on = has_drafts && s + 1 < end && life.finish == kernels::FinishReason::kNone &&
                plan.token_id[plan.query_start[e] + taken] == token[s];
    }
    if (has_drafts) {
      result.context_length = plan.context_before[e] + taken;
      rows.context_length[row.slot] = result.context_length;
    }
    result.flags = kernels::kResultSampled +
                   (static_cast<uint32_t>(life.finish) << kernels::kResultFinishShift) +
                   ((taken - 1) << kernels::kResultAcceptedShift);
    if (life.features & kernels::kFeatureLogprobs) result.flags += kernels::kResultLogprobs;
    if (life.features & kernels::kFeatureLogits) result.flags += kernels::kResultLogits;
    s = end;
  }
  return results;
}

}  // namespace reprise::testing
