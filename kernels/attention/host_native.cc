// SPDX-License-Identifier: Apache-2.0
// Paged attention, native candidate of the host device: one (item, KV head) at a time, for all
// heads of the group and all query tokens of the item, so that K and V come from memory once.
// Written over Highway; this file compiles itself once per instruction set (foreach_target.h) and
// picks at run time. The reference is attention_portable_body.h.
//
// For a tile of KV tokens: all scores, the softmax of each row, then the weighted sums of V. Both
// products hold a block of rows x tokens, or rows x dimensions, in registers and convert K and V as
// they read them: cheaper than a converted copy even for 64 rows. While one product runs, the rows
// that the next one reads are asked for; blocks of the cache are too short for the CPU to foresee.
//
// A row's bits depend on the row: a score has one vector of partial sums, walked in ascending
// dimension, and is added up in one way; tiles begin at multiples of their size or with the split;
// weights and sums go token by token. How many rows share a pass, or registers, enters nowhere, and
// neither does the phase. The vector width does.
#include "kernels/attention/host_native.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention_args.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/host_native_targets.h"
#include "kernels/device/block.h"
#include "kernels/device/fp8.h"
#include "kernels/device/host/instruction_sets.h"
#include "kernels/device/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/host_native.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/attention/host_native_products-inl.h"
#include "kernels/attention/host_native_rows-inl.h"
#include "kernels/attention/host_native_softmax-inl.h"
#include "kernels/device/host/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

static_assert(kLanes <= 16 && sizeof(RowState) <= 64);

// An item seen from one KV head.
struct Work {
  const AttentionWorkItem* item;
  int kv_head;
};

// Attention of one block. T: of queries and output; K: of the cache.
template <typename T, typename K>
class Attending {
 public:
  Attending(const AttentionArgs& a, std::byte* shared)
      : a_(a),
        head_dim_(a.kv.head_dim),
        group_(a.num_heads / a.kv.num_kv_heads),
        is_staged_(head_dim_ < Steps<K>::kStep),
        steps_(std::max(head_dim_, Steps<K>::kStep)),
        rule_(ScoreRule::Of(a)) {
    const NativeAttentionLayout l = NativeAttentionLayoutOf(head_dim_);
    const auto floats = [&](uint32_t offset) { return reinterpret_cast<float*>(shared + offset); };
    q_ = floats(l.q);
    sums_ = floats(l.sums);
    scores_ = floats(l.scores);
    weights_ = floats(l.weights);
    rows_ = reinterpret_cast<RowState*>(shared + l.rows);
    staged_ = reinterpret_cast<K*>(shared + l.staged);
    if (is_staged_) std::memset(shared + l.staged, 0, l.bytes - l.staged);
  }

  // next: what this block does behind it, nullptr where there is nothing.
  void Run(const Block& block, const Work& work, const Work* next) {
    item_ = *work.item;
    kv_head_ = work.kv_head;
    first_q_ = a_.query_start[item_.entry] + item_.q_begin;
    position_ = a_.context_before[item_.entry] + item_.q_begin;
    const int rows = static_cast<int>(item_.q_count) * group_;
    for (first_row_ = 0; first_row_ < rows; first_row_ += kNativePassRows) {
      num_rows_ = std::min(rows - first_row_, kNativePassRows);
      const bool is_last = rows - first_row_ <= kNativePassRows;
      RunPass(work, is_last ? next : &work);
    }
    if (item_.num_splits == 1 || a_.arrivals == nullptr) return;
    uint32_t* const arrivals =
        a_.arrivals + static_cast<int64_t>(item_.entry) * a_.kv.num_kv_heads + kv_head_;
    if (block.ArriveIsLast(arrivals, item_.num_splits))
      for (int r = 0; r < rows; ++r) MergeSplits(r / group_, kv_head_ * group_ + r % group_);
  }

 private:
  // The item's tokens in a tile, and where their rows of K and V lie. Tokens outside stand for the
  // nearest within.
  struct Tile {
    int begin = 0, end = 0;
    const K* k[kTile];
    const K* v[kTile];
  };

  int HeadOf(int r) const { return kv_head_ * group_ + (first_row_ + r) % group_; }
  int TokenOf(int r) const { return (first_row_ + r) / group_; }
  // Of row r in q and out.
  int64_t RowElement(int r) const {
    const int64_t token = int64_t{first_q_} + TokenOf(r);
    return (token * a_.num_heads + HeadOf(r)) * head_dim_;
  }
  int64_t PartialOf(uint32_t split, int token, int head) const {
    return PartialIndex(a_, item_.entry, split, item_.q_count, static_cast<uint32_t>(token), head);
  }

  // Where an item's first tile begins. As in the portable body: tiles of a prompt do not follow
  // from where a window or a chunk lets an item begin.
  static uint32_t OriginOf(const AttentionWorkItem& item) {
    const uint32_t tile = kTile;
    return item.num_splits > 1 ? item.kv_begin : item.kv_begin / tile * tile;
  }

  void RunPass(const Work& work, const Work* next) {
    LoadQueries();
    const uint32_t tile = kTile, origin = OriginOf(item_);
    LoadTile(work, origin, tiles_[0]);
    int at = 0;
    for (uint32_t kv0 = origin; kv0 < item_.kv_end; kv0 += tile, at ^= 1) {
      Tile& ahead = tiles_[at ^ 1];
      const bool is_last = item_.kv_end - kv0 <= tile;
      if (!is_last) {
        LoadTile(work, kv0 + tile, ahead);
      } else if (next != nullptr && !is_staged_) {
        LoadTile(*next, OriginOf(*next->item), ahead);
      }
      AttendTile(kv0, tiles_[at], is_last && (next == nullptr || is_staged_) ? nullptr : &ahead);
    }
    for (int r = 0; r < num_rows_; ++r) {
      if (item_.num_splits == 1) {
        StoreOutput(r);
      } else {
        StorePartial(r);
      }
    }
  }

  // What an element of K or V is worth, as stored: this costs nothing where it joins a query's
  // factor, or a row's last.
  float ElementScale(int part, int kv_head) const {
    return kIsFp8<K> ? a_.scales.Of(part, kv_head) : 1.0f;
  }

  void LoadQueries() {
    const int row_floats = steps_.RowFloats();
    const float factor = rule_.q_factor * ElementScale(kKeys, kv_head_);
    for (int r = 0; r < num_rows_; ++r) {
      rows_[r] = RowState();
      const uint32_t position = position_ + static_cast<uint32_t>(TokenOf(r));
      rows_[r].first_seen = std::max(FirstSeen(a_.window, position), item_.kv_begin);
      rows_[r].end_seen = std::min(position + 1, item_.kv_end);
      const T* const from = static_cast<const T*>(a_.q) + RowElement(r);
      LoadStepped(steps_, from, head_dim_, factor, q_ + r * row_floats);
    }
    std::fill(sums_, sums_ + num_rows_ * row_floats, 0.0f);
    std::fill(weights_, weights_ + num_rows_ * kLanes, 0.0f);
  }

  // ahead: the tile behind it, nullptr where there is none.
  void AttendTile(uint32_t kv0, const Tile& tile, const Tile* ahead) {
    int first = num_rows_, end = 0;  // of the rows that see any of it
    for (int r = 0; r < num_rows_; ++r) {
      RowState& row = rows_[r];
      row.begin = row.first_seen > kv0
                      ? static_cast<int>(std::min<uint32_t>(row.first_seen - kv0, kTile))
                      : 0;
      row.end =
          row.end_seen > kv0 ? static_cast<int>(std::min<uint32_t>(row.end_seen - kv0, kTile)) : 0;
      if (row.begin >= row.end) {
        row.begin = row.end = 0;
        continue;
      }
      first = std::min(first, r);
      end = r + 1;
    }
    if (first >= end) return;
    const ptrdiff_t row_floats = steps_.RowFloats();
    Dots(steps_, q_ + first * row_floats, end - first, tile.k, tile.v, tile.begin, tile.end,
         scores_ + first * kTile);
    for (int r = first; r < end; ++r) {
      RowState& row = rows_[r];
      if (row.begin == row.end) continue;
      float* const scores = scores_ + r * kTile;
      if (!rule_.is_plain()) {
        const uint32_t query = position_ + static_cast<uint32_t>(TokenOf(r));
        const auto distance = static_cast<float>(static_cast<int32_t>(kv0 - query));
        AdjustScores(rule_, HeadOf(r), distance, row.begin / kLanes * kLanes, row.end, scores);
      }
      SoftmaxRow(row, scores, weights_ + r * kLanes);
    }
    AddValues(tile, first, end, ahead != nullptr ? ahead->k : nullptr);
  }

  void AddValues(const Tile& tile, int r, int end, const K* const* ahead) {
    const auto add = [&]<int kRows>() HWY_ATTR {
      AddValuesSeen<kRows>(steps_, tile.v, scores_ + r * kTile, rows_ + r,
                           sums_ + r * static_cast<ptrdiff_t>(steps_.RowFloats()), ahead);
      r += kRows;
      ahead = nullptr;
    };
    while (r + 4 <= end) add.template operator()<4>();
    if (r + 2 <= end) add.template operator()<2>();
    if (r < end) add.template operator()<1>();
  }

  void LoadTile(const Work& work, uint32_t kv0, Tile& tile) {
    const AttentionWorkItem& item = *work.item;
    const uint32_t* const table =
        a_.block_table + static_cast<uint64_t>(item.row) * a_.max_blocks_per_row;
    const auto block_size = static_cast<uint32_t>(a_.kv.block_size);
    const uint32_t end = std::min(item.kv_end, kv0 + kTile);
    uint32_t p = std::max(item.kv_begin, kv0);
    tile.begin = static_cast<int>(p - kv0);
    tile.end = static_cast<int>(end - kv0);
    const auto* const cache = static_cast<const K*>(a_.kv_cache);
    for (int t = tile.begin; p < end;) {
      const uint32_t in_block = p % block_size;
      const int64_t block = table[p / block_size];
      const int64_t first = static_cast<int64_t>(in_block) * head_dim_;
      const K* k = cache + a_.kv.HeadOffset(block, kKeys, work.kv_head) + first;
      const K* v = cache + a_.kv.HeadOffset(block, kValues, work.kv_head) + first;
      const uint32_t run = std::min(block_size - in_block, end - p);
      p += run;
      for (const int to = t + static_cast<int>(run); t < to; ++t, k += head_dim_, v += head_dim_) {
        tile.k[t] = k;
        tile.v[t] = v;
      }
    }
    if (is_staged_) StageTile(tile);
    for (const K** rows : {tile.k, tile.v}) {
      std::fill(rows, rows + tile.begin, rows[tile.begin]);
      std::fill(rows + tile.end, rows + kTile, rows[tile.end - 1]);
    }
  }

  // Rows that are shorter than a step, with zeros behind them.
  void StageTile(Tile& tile) {
    const size_t bytes = static_cast<size_t>(head_dim_) * sizeof(K);
    K* k = staged_ + (&tile - tiles_) * 2 * kTile * Steps<K>::kStep;
    K* v = k + kTile * Steps<K>::kStep;
    for (int t = tile.begin; t < tile.end; ++t, k += Steps<K>::kStep, v += Steps<K>::kStep) {
      std::memcpy(k, tile.k[t], bytes);
      std::memcpy(v, tile.v[t], bytes);
      tile.k[t] = k;
      tile.v[t] = v;
    }
  }

  // What a row's sums are divided by, and multiplied by ahead of that, once all that it sees is in
  // them. A sink joins here, whichever of the two is larger.
  struct Normalizer {
    float factor, divisor;
  };
  Normalizer NormalizerOf(int head, float max, float weights) const {
    const float worth = ElementScale(kValues, head / group_);
    if (a_.sinks == nullptr) return {worth, weights};
    const float sink = a_.sinks[head] * kLog2E;
    const float top = std::max(max, sink);
    const float factor = Exp2(max - top);
    return {factor * worth, weights * factor + Exp2(sink - top)};
  }

  float WeightsOf(int r) const {
    return hn::GetLane(hn::SumOfLanes(D(), hn::Load(D(), weights_ + r * kLanes)));
  }

  void StoreOutput(int r) {
    const Normalizer by = NormalizerOf(HeadOf(r), rows_[r].max, WeightsOf(r));
    float* const sums = sums_ + r * steps_.RowFloats();
    if (by.factor != 1.0f)
      for (int i = 0; i < steps_.RowFloats(); ++i) sums[i] *= by.factor;
    UnstepRow(steps_, sums, by.divisor, q_);  // q has done its work
    RoundRow(q_, head_dim_, static_cast<T*>(a_.out) + RowElement(r));
  }

  void StorePartial(int r) {
    const int64_t at = PartialOf(item_.split, TokenOf(r), HeadOf(r));
    UnstepRow(steps_, sums_ + r * steps_.RowFloats(), 1.0f, q_);
    std::copy(q_, q_ + head_dim_, a_.partial_out + at * head_dim_);
    a_.partial_max[at] = rows_[r].max;
    a_.partial_sum[at] = WeightsOf(r);
  }

  // All splits of a query token's head, in split order.
  HWY_NOINLINE void MergeSplits(int token, int head) {
    float max = kMinusInfinity;
    for (uint32_t s = 0; s < item_.num_splits; ++s)
      max = std::max(max, a_.partial_max[PartialOf(s, token, head)]);
    float weights = 0.0f;
    float* const sums = q_;
    std::fill(sums, sums + head_dim_, 0.0f);
    for (uint32_t s = 0; s < item_.num_splits; ++s) {
      const int64_t at = PartialOf(s, token, head);
      const float factor = Exp2(a_.partial_max[at] - max);
      weights += a_.partial_sum[at] * factor;
      const float* const partial = a_.partial_out + at * head_dim_;
      for (int i = 0; i < head_dim_; ++i) sums[i] += partial[i] * factor;
    }
    const Normalizer by = NormalizerOf(head, max, weights);
    for (int i = 0; i < head_dim_; ++i) sums[i] = sums[i] * by.factor / by.divisor;
    const int64_t row = (int64_t{first_q_} + token) * a_.num_heads + head;
    RoundRow(sums, head_dim_, static_cast<T*>(a_.out) + row * head_dim_);
  }

  const AttentionArgs& a_;
  const int head_dim_, group_;
  const bool is_staged_;
  const Steps<K> steps_;
  const ScoreRule rule_;
  float *q_, *sums_, *scores_, *weights_;
  RowState* rows_;
  K* staged_;

  AttentionWorkItem item_ = {};
  int kv_head_ = 0;
  uint32_t first_q_ = 0;              // index of the item's first query token in the step
  uint32_t position_ = 0;             // KV position of that token
  int first_row_ = 0, num_rows_ = 0;  // of the pass

  Tile tiles_[2];
};

template <typename T, typename K>
HWY_NOINLINE void AttendOver(const runtime::HostBlockContext& context, const void* args) {
  const AttentionArgs& a = *static_cast<const AttentionArgs*>(args);
  const Block block(context);
  const auto heads = static_cast<uint32_t>(a.kv.num_kv_heads);
  const uint32_t total = *a.num_items * heads;
  if (context.block_x >= total) return;
  Attending<T, K> attending(a, context.shared);
  const auto work = [&](uint32_t i) {
    return Work{a.items + i / heads, static_cast<int>(i % heads)};
  };
  for (uint32_t i = context.block_x; i < total; i += context.grid_x) {
    const bool is_last = total - i <= context.grid_x;
    const Work next = work(is_last ? i : i + context.grid_x);
    attending.Run(block, work(i), is_last ? nullptr : &next);
  }
}

template <typename T>
void Attend(const runtime::HostBlockContext& context, const void* args) {
  AttendOver<T, T>(context, args);
}
template <typename T>
void AttendFp8(const runtime::HostBlockContext& context, const void* args) {
  if (static_cast<const AttentionArgs*>(args)->kv.dtype == runtime::DType::kE4m3) {
    AttendOver<T, E4m3>(context, args);
  } else {
    AttendOver<T, E5m2>(context, args);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::on_host {
namespace {

#define REPRISE_ATTENTION_TARGET(name, ns)     \
  NativeAttentionTarget{name,                  \
                        &ns::Attend<float>,    \
                        &ns::Attend<Bf16>,     \
                        &ns::Attend<F16>,      \
                        &ns::AttendFp8<float>, \
                        &ns::AttendFp8<Bf16>,  \
                        &ns::AttendFp8<F16>},
constexpr NativeAttentionTarget kTargets[] = {
    REPRISE_FOR_EACH_INSTRUCTION_SET(REPRISE_ATTENTION_TARGET)  //
};

}  // namespace

std::span<const NativeAttentionTarget> NativeAttentionTargets() {
  static const std::span<const NativeAttentionTarget> targets =
      RunnableHere<NativeAttentionTarget>(kTargets);
  return targets;
}

void reprise_attention_native_f32(const runtime::HostBlockContext& context, const void* args) {
  NativeAttentionTargets().front().f32(context, args);
}
void reprise_attention_native_bf16(const runtime::HostBlockContext& context, const void* args) {
  NativeAttentionTargets().front().bf16(context, args);
}
void reprise_attention_native_f16(const runtime::HostBlockContext& context, const void* args) {
  NativeAttentionTargets().front().f16(context, args);
}
void reprise_attention_native_f32_fp8(const runtime::HostBlockContext& context, const void* args) {
  NativeAttentionTargets().front().f32_fp8(context, args);
}
void reprise_attention_native_bf16_fp8(const runtime::HostBlockContext& context, const void* args) {
  NativeAttentionTargets().front().bf16_fp8(context, args);
}
void reprise_attention_native_f16_fp8(const runtime::HostBlockContext& context, const void* args) {
  NativeAttentionTargets().front().f16_fp8(context, args);
}

}  // namespace reprise::kernels::on_host
#endif  // HWY_ONCE
