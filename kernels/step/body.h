// SPDX-License-Identifier: Apache-2.0
// Bodies of fetch, plan and publish, block style.
#ifndef REPRISE_KERNELS_STEP_BODY_H_
#define REPRISE_KERNELS_STEP_BODY_H_

#include "kernels/device/block.h"
#include "kernels/step/step_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The slot's first bytes come over the bus in one trip: header and, for up to 126 rows, all of the
// step that is not a table.
constexpr int kFetchAheadBytes = 4096;

// Copies `words` 4-byte words of a ring slot, which come over the bus 16 bytes at a time. `from` is
// a multiple of 16.
REPRISE_FN void StageFromHost(Block& b, const unsigned char* from, uint32_t* to, int words) {
  b.For((words + 3) / 4, [&](int i) {
    const Vec<uint32_t, 4> x = b.LoadFromHost(from + static_cast<int64_t>(i) * 16);
    REPRISE_UNROLL
    for (int j = 0; j < 4; ++j)
      if (i * 4 + j < words) to[i * 4 + j] = x.v[j];
  });
}

// Writes one update's ids into the resident table. Ids start anywhere: whole 16-byte words come in,
// single ids go out.
REPRISE_FN void ApplyTableUpdate(Block& b, const FetchArgs& a, const TableUpdate& update,
                                 const unsigned char* blocks) {
  uint32_t* table =
      a.rows.block_table + static_cast<uint64_t>(update.slot) * a.rows.max_blocks_per_row;
  const uint32_t first_word = update.offset / 4;
  const uint32_t end = update.offset + update.count;
  b.For(static_cast<int>((end + 3) / 4 - first_word), [&](int i) {
    const uint32_t word = first_word + static_cast<uint32_t>(i);
    const Vec<uint32_t, 4> ids = b.LoadFromHost(blocks + static_cast<uint64_t>(word) * 16);
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t at = word * 4 + j;
      if (at >= update.offset && at < end) table[update.first + at - update.offset] = ids.v[j];
    }
  });
}

// Counts token ids into a row's history: those before `prompt_length` as the prompt's, the others
// as sampled; 0: all as the prompt's. The first word is prompt_length.
REPRISE_FN void ApplyHistory(Block& b, const FetchArgs& a, const SamplingUpdate& update,
                             const unsigned char* data) {
  const int vocab = static_cast<int>(a.rows.vocab);
  uint32_t* history = a.rows.history + static_cast<uint64_t>(update.slot) * a.rows.vocab;
  b.For(vocab, [&](int i) { history[i] = 0; });
  auto* ahead = b.Shared<uint32_t>();
  StageFromHost(b, data, ahead, 1);
  b.Sync();
  const uint32_t prompt_length = ahead[0];
  b.For(static_cast<int>((update.count + 3) / 4), [&](int i) {
    const Vec<uint32_t, 4> ids = b.LoadFromHost(data + static_cast<uint64_t>(i) * 16);
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t word = static_cast<uint32_t>(i) * 4 + j;
      if (word == 0 || word >= update.count) continue;
      const uint32_t position = word - 1;
      if (prompt_length == 0 || position < prompt_length) {
        b.AtomicOr(&history[ids.v[j]], kHistoryPrompt);
      } else {
        b.AtomicAdd(&history[ids.v[j]], 1u);
      }
    }
  });
}

// Writes one update's words into what the row keeps for sampling.
REPRISE_FN void ApplySamplingUpdate(Block& b, const FetchArgs& a, const SamplingUpdate& update,
                                    const unsigned char* all_data) {
  const unsigned char* data = all_data + static_cast<uint64_t>(update.offset) * 4;
  if (update.kind == kUpdateHistory) return ApplyHistory(b, a, update, data);
  const uint64_t row = update.slot;
  uint32_t* to = nullptr;
  if (update.kind == kUpdateSampling) {
    to = reinterpret_cast<uint32_t*>(a.rows.sampling + row);
  } else if (update.kind == kUpdateStop) {
    to = a.rows.stop_token + row * kMaxStopTokens;
  } else if (update.kind == kUpdateBias) {
    to = reinterpret_cast<uint32_t*>(a.rows.bias + row * kMaxLogitBias);
  } else {
    to = a.rows.mask + row * a.rows.mask_words;
  }
  StageFromHost(b, data, to, static_cast<int>(update.count));
}

// Block 0 stages header, rows and token ids; all blocks share the updates of block tables and of
// sampling. Dynamic shared memory: kFetchAheadBytes.
REPRISE_FN void FetchBody(Block& b, const FetchArgs& a) {
  const uint64_t begin_ns = b.ClockNs();
  const uint64_t count = *a.step_count;
  const unsigned char* slot = a.ring + (count % a.depth) * a.layout.bytes;
  auto* ahead = b.Shared<uint32_t>();
  const int ahead_bytes =
      b.x() != 0 ? static_cast<int>(sizeof(StepHeader))
                 : (a.layout.bytes < kFetchAheadBytes ? static_cast<int>(a.layout.bytes)
                                                      : kFetchAheadBytes);
  StageFromHost(b, slot, ahead, ahead_bytes / 4);
  b.Sync();
  const StepHeader header = *b.Shared<StepHeader>();
  const bool live = header.sequence == count + 1;
  const int num_updates = live ? static_cast<int>(header.num_table_updates) : 0;
  const int num_sampling = live ? static_cast<int>(header.num_sampling_updates) : 0;

  if (b.x() == 0) {
    b.Once([&] {
      PlanCounts counts{};
      counts.sequence = live ? count + 1 : 0;
      counts.begin_ns = begin_ns;
      counts.num_rows = live ? header.num_rows : 0;
      counts.num_tokens = live ? header.num_tokens : 0;
      counts.num_table_updates = static_cast<uint32_t>(num_updates);
      *a.plan.counts = counts;
    });
    constexpr int kRowWords = sizeof(RowEntry) / 4;
    const int rows = live ? static_cast<int>(header.num_rows) : 0;
    const int room = (ahead_bytes - static_cast<int>(a.layout.rows)) / 4 / kRowWords;
    const int rows_ahead = rows < room ? rows : room;
    auto* entries = reinterpret_cast<uint32_t*>(a.plan.entries);
    b.For(rows_ahead * kRowWords, [&](int i) { entries[i] = ahead[a.layout.rows / 4 + i]; });
    StageFromHost(b, slot + a.layout.rows + static_cast<uint64_t>(rows_ahead) * sizeof(RowEntry),
                  entries + rows_ahead * kRowWords, (rows - rows_ahead) * kRowWords);
    if (live)
      StageFromHost(b, slot + a.layout.tokens, a.plan.given_tokens,
                    static_cast<int>(header.num_given_tokens));
  }
  for (int u = b.x(); u < num_updates; u += b.grid_x()) {
    b.Sync();  // the update before has been read
    StageFromHost(b, slot + a.layout.table_updates + static_cast<uint64_t>(u) * sizeof(TableUpdate),
                  ahead, sizeof(TableUpdate) / 4);
    b.Sync();
    ApplyTableUpdate(b, a, *b.Shared<TableUpdate>(), slot + a.layout.blocks);
  }
  for (int u = b.x(); u < num_sampling; u += b.grid_x()) {
    b.Sync();
    StageFromHost(
        b, slot + a.layout.sampling_updates + static_cast<uint64_t>(u) * sizeof(SamplingUpdate),
        ahead, sizeof(SamplingUpdate) / 4);
    b.Sync();
    const SamplingUpdate update = *b.Shared<SamplingUpdate>();
    b.Sync();  // ahead is scratch from here on
    ApplySamplingUpdate(b, a, update, slot + a.layout.sampling_data);
  }
}

// The largest e with start[e] <= t, for ascending start[0..n] with start[0] == 0 and t < start[n].
REPRISE_FN uint32_t OwnerOf(const uint32_t* start, uint32_t n, uint32_t t) {
  uint32_t lo = 0, hi = n;
  while (hi - lo > 1) {
    const uint32_t mid = (lo + hi) / 2;
    if (start[mid] <= t) {
      lo = mid;
    } else {
      hi = mid;
    }
  }
  return lo;
}

REPRISE_FN uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Tokens of one split of a row with `kv_length` tokens.
REPRISE_FN uint32_t SplitLength(const SplitRule& rule, uint32_t kv_length) {
  const uint32_t even = CeilDiv(kv_length, rule.max_splits);
  const uint32_t rounded = CeilDiv(even, rule.split_multiple) * rule.split_multiple;
  return rounded > rule.min_split_tokens ? rounded : rule.min_split_tokens;
}

// The first KV position that a query token at `position` sees.
REPRISE_FN uint32_t FirstSeen(uint32_t window, uint32_t position) {
  return window != 0 && position >= window ? position - window + 1 : 0u;
}

// The splits of a row of one query token: `count` pieces of `length` tokens from `begin` on, the
// last one up to `end`.
struct RowSplits {
  uint32_t begin, end, length, count;
};
REPRISE_FN RowSplits SplitsOf(const PlanArgs& a, uint32_t position) {
  RowSplits s;
  s.begin = FirstSeen(a.window, position);
  s.end = position + 1;
  s.length = SplitLength(a.split, s.end - s.begin);
  s.count = CeilDiv(s.end - s.begin, s.length);
  return s;
}

// Rows: initial state where the host gives it, features, context before this step. A row that has
// stopped is left with no token to run.
REPRISE_FN void PlanRows(Block& b, const PlanArgs& a, int rows) {
  const StepPlan& p = a.plan;
  b.For(rows, [&](int e) {
    RowEntry entry = p.entries[e];
    const uint32_t given_features = entry.flags >> kRowFeatureShift;
    RowLife life{given_features, 0, FinishReason::kNone, 0};
    if ((entry.flags & kRowReset) != 0) {
      a.rows.context_length[entry.slot] = entry.context_length;
      a.rows.temperature[entry.slot] = entry.temperature;
      a.rows.seed[entry.slot] = entry.seed;
      a.rows.life[entry.slot] = life;
      p.context_before[e] = entry.context_length;
      return;
    }
    p.context_before[e] = a.rows.context_length[entry.slot];
    life = a.rows.life[entry.slot];
    if ((entry.flags & kRowFeatures) != 0) {
      life.features = given_features;
      a.rows.life[entry.slot] = life;
    }
    entry.flags = (entry.flags & ((1u << kRowFeatureShift) - 1)) | life.features
                                                                       << kRowFeatureShift;
    if (life.finish != FinishReason::kNone) {
      entry.flags = (entry.flags & ~(kRowSample | kRowPromptLogprobs)) | kRowStopped;
      entry.num_tokens = 0;
    }
    p.entries[e] = entry;
  });
}

// A given token of a row with penalties enters its history.
REPRISE_FN void NoteGivenToken(Block& b, const PlanArgs& a, const RowEntry& entry, uint32_t token,
                               uint32_t position) {
  uint32_t* count = a.rows.history + static_cast<uint64_t>(entry.slot) * a.rows.vocab + token;
  const uint32_t prompt_length = a.rows.sampling[entry.slot].prompt_length;
  if (prompt_length == 0 || position < prompt_length) {
    b.AtomicOr(count, kHistoryPrompt);
  } else {
    b.AtomicAdd(count, 1u);
  }
}

// Tokens: id, position, KV slot.
REPRISE_FN void PlanTokens(Block& b, const PlanArgs& a, uint32_t num_rows, uint32_t num_tokens) {
  const StepPlan& p = a.plan;
  b.For(static_cast<int>(num_tokens), [&](int t) {
    const uint32_t e = OwnerOf(p.query_start, num_rows, static_cast<uint32_t>(t));
    const RowEntry entry = p.entries[e];
    const uint32_t within = static_cast<uint32_t>(t) - p.query_start[e];
    const uint32_t position = p.context_before[e] + within;
    const bool given = (entry.flags & kRowTokensGiven) != 0;
    const uint32_t token =
        given ? p.given_tokens[entry.given_offset + within] : a.rows.last_token[entry.slot];
    p.token_id[t] = token;
    p.token_position[t] = position;
    const uint32_t index = position / a.block_size;
    p.token_block[t] =
        a.rows.block_table[static_cast<uint64_t>(entry.slot) * a.rows.max_blocks_per_row + index];
    p.token_offset[t] = position - index * a.block_size;
    if (given && (entry.flags & (kFeaturePenalties << kRowFeatureShift)) != 0)
      NoteGivenToken(b, a, entry, token, position);
  });
}

// Rows that sample, in request order, and which of them report their logits.
REPRISE_FN uint32_t PlanSampled(Block& b, const StepPlan& p, int rows) {
  const uint32_t num_sampled = b.ExclusiveScan(
      rows, [&](int e) { return (p.entries[e].flags & kRowSample) != 0 ? 1u : 0u; },
      [&](int e, uint32_t s) {
        if ((p.entries[e].flags & kRowSample) == 0) return;
        p.sampled_entry[s] = static_cast<uint32_t>(e);
        p.sampled_token[s] = p.query_start[e] + p.entries[e].num_tokens - 1;
      });
  if (p.logits_place == nullptr) return num_sampled;
  constexpr uint32_t kLogits = kFeatureLogits << kRowFeatureShift;
  b.ExclusiveScan(
      static_cast<int>(num_sampled),
      [&](int s) { return (p.entries[p.sampled_entry[s]].flags & kLogits) != 0 ? 1u : 0u; },
      [&](int s, uint32_t place) { p.logits_place[s] = place; });
  return num_sampled;
}

// Given tokens of `entry` whose likelihood is asked for: all that are followed by a known one.
REPRISE_FN uint32_t NumPromptLogprobs(const RowEntry& entry) {
  if ((entry.flags & kRowPromptLogprobs) == 0) return 0;
  return entry.num_tokens - ((entry.flags & kRowNextGiven) != 0 ? 0u : 1u);
}

// Their logits come behind those of the sampled rows.
REPRISE_FN uint32_t PlanPromptLogprobs(Block& b, const StepPlan& p, int rows,
                                       uint32_t num_sampled) {
  return b.ExclusiveScan(
      rows, [&](int e) { return NumPromptLogprobs(p.entries[e]); },
      [&](int e, uint32_t first) {
        const RowEntry entry = p.entries[e];
        for (uint32_t i = 0; i < NumPromptLogprobs(entry); ++i) {
          p.sampled_token[num_sampled + first + i] = p.query_start[e] + i;
          p.prompt_entry[first + i] = static_cast<uint32_t>(e);
          p.prompt_target[first + i] = p.given_tokens[entry.given_offset + i + 1];
        }
      });
}

REPRISE_FN void PlanBody(Block& b, const PlanArgs& a) {
  const StepPlan& p = a.plan;
  const uint32_t num_rows = p.counts->num_rows;
  const int rows = static_cast<int>(num_rows);

  PlanRows(b, a, rows);
  const uint32_t num_tokens = b.ExclusiveScan(
      rows, [&](int e) { return p.entries[e].num_tokens; },
      [&](int e, uint32_t start) { p.query_start[e] = start; });
  b.Once([&] { p.query_start[num_rows] = num_tokens; });  // for the kernels that follow
  PlanTokens(b, a, num_rows, num_tokens);
  const uint32_t num_sampled = PlanSampled(b, p, rows);
  const uint32_t num_prompt =
      p.prompt_target == nullptr ? 0 : PlanPromptLogprobs(b, p, rows, num_sampled);

  // Attention: one query token -> decode items, one per split; more -> prefill items, one per group
  // of query tokens.
  const uint32_t num_decode = b.ExclusiveScan(
      rows,
      [&](int e) {
        return p.entries[e].num_tokens == 1 ? SplitsOf(a, p.context_before[e]).count : 0u;
      },
      [&](int e, uint32_t first) {
        if (p.entries[e].num_tokens != 1) return;
        const RowSplits row = SplitsOf(a, p.context_before[e]);
        for (uint32_t s = 0; s < row.count; ++s) {
          const uint32_t begin = row.begin + s * row.length;
          const uint32_t end = row.end - begin > row.length ? begin + row.length : row.end;
          p.decode_items[first + s] =
              AttentionItem{static_cast<uint32_t>(e), 0, 1, begin, end, s, row.count, 0};
        }
      });
  const uint32_t num_prefill = b.ExclusiveScan(
      rows,
      [&](int e) {
        const uint32_t n = p.entries[e].num_tokens;
        return n > 1 ? CeilDiv(n, a.prefill_q_tokens) : 0u;
      },
      [&](int e, uint32_t first) {
        const uint32_t n = p.entries[e].num_tokens;
        for (uint32_t q = 0, i = first; n > 1 && q < n; q += a.prefill_q_tokens, ++i) {
          const uint32_t count = n - q < a.prefill_q_tokens ? n - q : a.prefill_q_tokens;
          const uint32_t position = p.context_before[e] + q;
          p.prefill_items[i] =
              AttentionItem{static_cast<uint32_t>(e), q, count, FirstSeen(a.window, position),
                            position + count,         0, 1,     0};
        }
      });
  b.Once([&] {
    p.counts->num_tokens = num_tokens;  // without those of stopped rows
    p.counts->num_sampled = num_sampled;
    p.counts->num_prompt_logprobs = num_prompt;
    p.counts->num_logits = num_sampled + num_prompt;
    p.counts->num_decode_items = num_decode;
    p.counts->num_prefill_items = num_prefill;
  });
}

REPRISE_FN bool IsStopToken(const ResidentRows& rows, uint32_t slot, uint32_t num_stop,
                            uint32_t token) {
  const uint32_t* stop = rows.stop_token + static_cast<uint64_t>(slot) * kMaxStopTokens;
  for (uint32_t i = 0; i < num_stop; ++i)
    if (stop[i] == token) return true;
  return false;
}

// Why the row ends with `token`, its `generated`-th; FinishReason::kNone when it goes on.
REPRISE_FN FinishReason FinishOf(const ResidentRows& rows, const RowEntry& entry, uint32_t token,
                                 uint32_t generated) {
  if (token == kNoCandidate) return FinishReason::kNoCandidate;
  if ((entry.flags & (kFeatureStop << kRowFeatureShift)) == 0) return FinishReason::kNone;
  const RowSampling sampling = rows.sampling[entry.slot];
  if (generated > sampling.min_tokens && IsStopToken(rows, entry.slot, sampling.num_stop, token))
    return FinishReason::kStopToken;
  return sampling.max_new_tokens != 0 && generated >= sampling.max_new_tokens
             ? FinishReason::kLength
             : FinishReason::kNone;
}

// Row `s` of the sampled ones moves on by its token.
REPRISE_FN void AdvanceSampled(Block& b, const PublishArgs& a, int s) {
  const uint32_t e = a.plan.sampled_entry[s];
  const RowEntry entry = a.plan.entries[e];
  const uint32_t features = entry.flags >> kRowFeatureShift;
  const uint32_t token = a.sampled_token_id[s];
  RowLife life = a.rows.life[entry.slot];
  ++life.generated;
  life.finish = FinishOf(a.rows, entry, token, life.generated);
  a.rows.life[entry.slot] = life;
  const uint32_t reported = token == kNoCandidate ? 0 : token;
  a.rows.last_token[entry.slot] = reported;
  if ((features & kFeaturePenalties) != 0)
    b.AtomicAdd(a.rows.history + static_cast<uint64_t>(entry.slot) * a.rows.vocab + reported, 1u);
  uint32_t flags = kResultSampled | static_cast<uint32_t>(life.finish) << kResultFinishShift;
  if ((features & kFeatureLogprobs) != 0) flags |= kResultLogprobs;
  if ((features & kFeatureLogits) != 0) flags |= kResultLogits;
  a.staging[e].token = reported;
  a.staging[e].logprob = a.sampled_logprob[s];
  a.staging[e].flags = flags;
}

REPRISE_FN void PublishBody(Block& b, const PublishArgs& a) {
  const StepPlan& p = a.plan;
  const PlanCounts counts = *p.counts;
  if (counts.sequence == 0) return;  // idle replay
  const int rows = static_cast<int>(counts.num_rows);
  unsigned char* slot = a.ring + ((counts.sequence - 1) % a.depth) * a.slot_bytes;
  auto* header = reinterpret_cast<ResultHeader*>(slot);
  auto* results = reinterpret_cast<RowResult*>(slot + sizeof(ResultHeader));

  b.For(rows, [&](int e) {
    const RowEntry entry = p.entries[e];
    const uint32_t length = p.context_before[e] + entry.num_tokens;
    a.rows.context_length[entry.slot] = length;
    const uint32_t flags = (entry.flags & kRowStopped) != 0 ? kResultStopped : 0u;
    a.staging[e] = RowResult{0, 0.0f, length, flags};
  });
  b.Sync();
  b.For(static_cast<int>(counts.num_sampled), [&](int s) { AdvanceSampled(b, a, s); });
  b.Sync();
  constexpr int kWords = sizeof(RowResult) / sizeof(uint64_t);
  const auto* words = reinterpret_cast<const uint64_t*>(a.staging);
  auto* out = reinterpret_cast<uint64_t*>(results);
  b.For(rows * kWords, [&](int i) { out[i] = words[i]; });
  b.Once([&] {
    header->begin_ns = counts.begin_ns;
    header->end_ns = b.ClockNs();
    header->num_rows = counts.num_rows;
    *a.step_count = counts.sequence;
  });
  b.PublishToHost(&header->sequence, counts.sequence);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_BODY_H_
