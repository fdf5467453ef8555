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

// Block 0 stages header, rows and token ids; all blocks share the block-table updates. Dynamic
// shared memory: kFetchAheadBytes.
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

REPRISE_FN void PlanBody(Block& b, const PlanArgs& a) {
  const StepPlan& p = a.plan;
  const uint32_t num_rows = p.counts->num_rows;
  const uint32_t num_tokens = p.counts->num_tokens;
  const int rows = static_cast<int>(num_rows);

  // Rows: initial state where the host gives it, context before this step.
  b.For(rows, [&](int e) {
    const RowEntry entry = p.entries[e];
    if ((entry.flags & kRowReset) != 0) {
      a.rows.context_length[entry.slot] = entry.context_length;
      a.rows.temperature[entry.slot] = entry.temperature;
      a.rows.seed[entry.slot] = entry.seed;
      p.context_before[e] = entry.context_length;
    } else {
      p.context_before[e] = a.rows.context_length[entry.slot];
    }
  });
  b.ExclusiveScan(
      rows, [&](int e) { return p.entries[e].num_tokens; },
      [&](int e, uint32_t start) { p.query_start[e] = start; });
  b.Once([&] { p.query_start[num_rows] = num_tokens; });
  b.Sync();

  // Tokens: id, position, KV slot.
  b.For(static_cast<int>(num_tokens), [&](int t) {
    const uint32_t e = OwnerOf(p.query_start, num_rows, static_cast<uint32_t>(t));
    const RowEntry entry = p.entries[e];
    const uint32_t within = static_cast<uint32_t>(t) - p.query_start[e];
    const uint32_t position = p.context_before[e] + within;
    p.token_id[t] = (entry.flags & kRowTokensGiven) != 0
                        ? p.given_tokens[entry.given_offset + within]
                        : a.rows.last_token[entry.slot];
    p.token_position[t] = position;
    const uint32_t index = position / a.block_size;
    p.token_block[t] =
        a.rows.block_table[static_cast<uint64_t>(entry.slot) * a.rows.max_blocks_per_row + index];
    p.token_offset[t] = position - index * a.block_size;
  });

  // Rows that sample, in request order.
  const uint32_t num_sampled = b.ExclusiveScan(
      rows, [&](int e) { return (p.entries[e].flags & kRowSample) != 0 ? 1u : 0u; },
      [&](int e, uint32_t s) {
        if ((p.entries[e].flags & kRowSample) == 0) return;
        p.sampled_entry[s] = static_cast<uint32_t>(e);
        p.sampled_token[s] = p.query_start[e + 1] - 1;
      });

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
    p.counts->num_sampled = num_sampled;
    p.counts->num_decode_items = num_decode;
    p.counts->num_prefill_items = num_prefill;
  });
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
    a.staging[e] = RowResult{0, 0.0f, length, 0};
  });
  b.Sync();
  b.For(static_cast<int>(counts.num_sampled), [&](int s) {
    const uint32_t e = p.sampled_entry[s];
    a.rows.last_token[p.entries[e].slot] = a.sampled_token_id[s];
    a.staging[e].token = a.sampled_token_id[s];
    a.staging[e].logprob = a.sampled_logprob[s];
    a.staging[e].flags = kResultSampled;
  });
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
