// SPDX-License-Identifier: Apache-2.0
// Body of fetch, block style: the metadata ring's entry comes to the device, and updates go to the
// resident rows.
#ifndef REPRISE_KERNELS_STEP_FETCH_BODY_H_
#define REPRISE_KERNELS_STEP_FETCH_BODY_H_

#include "kernels/device/block.h"
#include "kernels/step/fetch_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Copies `words` 4-byte words of a ring entry, which come over the bus 16 bytes at a time. `from`
// is a multiple of 16.
REPRISE_FN void StageFromHost(Block& b, const unsigned char* from, uint32_t* to, int words) {
  b.For((words + 3) / 4, [&](int i) {
    const Vec<uint32_t, 4> x = b.LoadFromHost(from + static_cast<int64_t>(i) * 16);
    REPRISE_UNROLL
    for (int j = 0; j < 4; ++j)
      if (i * 4 + j < words) to[i * 4 + j] = x.v[j];
  });
}

// Updates of block tables that a block takes at a time, where all have few ids: these lie side by
// side, and their lines are read by one block.
constexpr uint32_t kTableUpdatesAtOnce = 8, kFewTableIds = 1024;

// Writes the ids of up to so many updates into the resident tables. Ids start anywhere: whole
// 16-byte words come in, each once, and single ids go out.
REPRISE_FN void ApplyTableUpdates(Block& b, const FetchArgs& a, const TableUpdate* updates,
                                  uint32_t count, const unsigned char* blocks) {
  uint32_t begin = 0xffffffffu, end = 0;
  for (uint32_t u = 0; u < count; ++u) {
    const uint32_t last = updates[u].offset + updates[u].count;
    if (updates[u].offset < begin) begin = updates[u].offset;
    if (last > end) end = last;
  }
  const uint32_t first_word = begin / 4;
  b.For(static_cast<int>((end + 3) / 4 - first_word), [&](int i) {
    const uint32_t word = first_word + static_cast<uint32_t>(i);
    const Vec<uint32_t, 4> ids = b.LoadFromHost(blocks + static_cast<uint64_t>(word) * 16);
    for (uint32_t u = 0; u < count; ++u) {
      const TableUpdate& update = updates[u];
      uint32_t* const table =
          a.rows.block_table + static_cast<uint64_t>(update.slot) * a.rows.max_blocks_per_row;
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t of_update = word * 4 + j - update.offset;  // large where it comes before
        if (of_update < update.count) table[update.first + of_update] = ids.v[j];
      }
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
// sampling, which the first replay of a request alone has. Dynamic shared memory: kFetchAheadBytes.
REPRISE_FN void FetchBody(Block& b, const FetchArgs& a) {
  const uint64_t begin_ns = b.ClockNs();
  const StepProgress progress = *a.progress;
  const bool repeats = progress.replay != 0;
  if (repeats && b.x() != 0) return;
  const uint64_t part = repeats ? a.layout.repeat : 0;
  const uint64_t members =
      repeats ? a.layout.repeat_prefix_members - part : a.layout.prefix_members;
  const unsigned char* ring_entry = a.ring + progress.requests % a.depth * a.layout.bytes + part;
  auto* ahead = b.Shared<uint32_t>();
  const uint64_t room_bytes = a.layout.bytes - part;
  const int ahead_bytes = b.x() != 0 ? static_cast<int>(sizeof(StepHeader))
                                     : (room_bytes < kFetchAheadBytes ? static_cast<int>(room_bytes)
                                                                      : kFetchAheadBytes);
  StageFromHost(b, ring_entry + a.layout.Header(static_cast<uint32_t>(b.x())), ahead,
                ahead_bytes / 4);
  b.Sync();
  const StepHeader header = *b.Shared<StepHeader>();
  const uint64_t sequence = progress.published + 1;
  const bool live = header.sequence + progress.replay == sequence;
  const int num_updates = live ? static_cast<int>(header.num_table_updates) : 0;
  const int num_sampling = live ? static_cast<int>(header.num_sampling_updates) : 0;

  if (b.x() == 0) {
    b.Once([&] {
      PlanCounts counts{};
      counts.sequence = live ? sequence : 0;
      counts.begin_ns = begin_ns;
      counts.num_rows = live ? header.num_rows : 0;
      counts.num_tokens = live ? header.num_tokens : 0;
      counts.num_table_updates = static_cast<uint32_t>(num_updates);
      counts.num_prefix_members = live ? header.num_prefix_members : 0;
      counts.replay = static_cast<uint32_t>(progress.replay);
      counts.num_replays = live ? header.num_replays : 0;
      *a.plan.counts = counts;
    });
    constexpr int kRowWords = sizeof(RowEntry) / 4;
    const int rows = live ? static_cast<int>(header.num_rows) : 0;
    const int room = (ahead_bytes - static_cast<int>(a.layout.rows)) / 4 / kRowWords;
    const int rows_ahead = rows < room ? rows : room;
    auto* given_rows = reinterpret_cast<uint32_t*>(a.plan.given_rows);
    b.For(rows_ahead * kRowWords, [&](int i) { given_rows[i] = ahead[a.layout.rows / 4 + i]; });
    StageFromHost(b,
                  ring_entry + a.layout.rows + static_cast<uint64_t>(rows_ahead) * sizeof(RowEntry),
                  given_rows + rows_ahead * kRowWords, (rows - rows_ahead) * kRowWords);
    if (live)
      StageFromHost(b, ring_entry + a.layout.tokens, a.plan.given_tokens,
                    static_cast<int>(header.num_given_tokens));
    if (live && header.num_prefix_members != 0)
      StageFromHost(b, ring_entry + members, reinterpret_cast<uint32_t*>(a.plan.prefix),
                    static_cast<int>(header.num_prefix_members * sizeof(PrefixMember) / 4));
  }
  const int at_once =
      header.num_table_ids <= kFewTableIds ? static_cast<int>(kTableUpdatesAtOnce) : 1;
  for (int u = b.x() * at_once; u < num_updates; u += b.grid_x() * at_once) {
    const int count = num_updates - u < at_once ? num_updates - u : at_once;
    b.Sync();  // what lay there has been read
    StageFromHost(
        b, ring_entry + a.layout.table_updates + static_cast<uint64_t>(u) * sizeof(TableUpdate),
        ahead, count * static_cast<int>(sizeof(TableUpdate) / 4));
    b.Sync();
    ApplyTableUpdates(b, a, b.Shared<TableUpdate>(), static_cast<uint32_t>(count),
                      ring_entry + a.layout.blocks);
  }
  for (int u = b.x(); u < num_sampling; u += b.grid_x()) {
    b.Sync();
    StageFromHost(
        b,
        ring_entry + a.layout.sampling_updates + static_cast<uint64_t>(u) * sizeof(SamplingUpdate),
        ahead, sizeof(SamplingUpdate) / 4);
    b.Sync();
    const SamplingUpdate update = *b.Shared<SamplingUpdate>();
    b.Sync();  // ahead is scratch from here on
    ApplySamplingUpdate(b, a, update, ring_entry + a.layout.sampling_data);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_FETCH_BODY_H_
