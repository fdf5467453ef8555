// SPDX-License-Identifier: Apache-2.0
// Attention's part of the plan, block style: cuts the rows that run as the tree says, and lists or
// deals the pieces. plan/plan_body.h calls it, most of it row by row.
#ifndef REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_
#define REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_

#include "kernels/attention/plan.h"
#include "kernels/device/block.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FN uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

REPRISE_FN uint32_t RoundUp(uint32_t x, uint32_t multiple) {
  return CeilDiv(x, multiple) * multiple;
}

// A row that runs, as attention's plan sees it.
struct QueryRow {
  uint32_t row;             // resident
  uint32_t num_tokens;      // query tokens; 0: nothing to do
  uint32_t context_before;  // KV tokens before them

  REPRISE_FN bool decodes() const { return num_tokens == 1; }
  // KV tokens that the query tokens see.
  REPRISE_FN uint32_t VisibleTokens(uint32_t window) const {
    return context_before + num_tokens - FirstSeen(window, context_before);
  }
};

// ---- what the tree decides by, and what it decides ----

struct BatchFeatures {
  uint32_t rows, decode_tokens, longest_decode, prompt_tokens;

  constexpr uint32_t operator()(AttentionFeature feature) const {
    switch (feature) {
      case AttentionFeature::kBatchRows:
        return rows;
      case AttentionFeature::kDecodeTokens:
        return decode_tokens;
      case AttentionFeature::kLongestDecode:
        return longest_decode;
      default:
        return prompt_tokens;
    }
  }
};
// What one row adds to them, and how rows are put together.
REPRISE_FN BatchFeatures FeaturesOf(uint32_t window, const QueryRow& row) {
  if (row.num_tokens > 1) return {1, 0, 0, row.num_tokens};
  const uint32_t visible = row.decodes() ? row.VisibleTokens(window) : 0;
  return {1, visible, visible, 0};
}
REPRISE_FN BatchFeatures Together(const BatchFeatures& x, const BatchFeatures& y) {
  return {x.rows + y.rows, x.decode_tokens + y.decode_tokens,
          x.longest_decode > y.longest_decode ? x.longest_decode : y.longest_decode,
          x.prompt_tokens + y.prompt_tokens};
}

struct RowFeatures {
  BatchFeatures batch;
  uint32_t visible_tokens, query_tokens;

  constexpr uint32_t operator()(AttentionFeature feature) const {
    if (feature == AttentionFeature::kVisibleTokens) return visible_tokens;
    return feature == AttentionFeature::kQueryTokens ? query_tokens : batch(feature);
  }
};

// Copies the tree to shared memory; a Sync must follow before it is looked at.
REPRISE_FN const AttentionTree& LoadTree(Block& b, const AttentionPlanRule& rule, void* shared) {
  auto* to = static_cast<uint32_t*>(shared);
  const auto* from = reinterpret_cast<const uint32_t*>(rule.tree);
  b.For(static_cast<int>(sizeof(AttentionTree) / sizeof(uint32_t)),
        [&](int i) { to[i] = from[i]; });
  return *static_cast<const AttentionTree*>(shared);
}

// ---- items ----

// Tokens of one split of a row with `visible` tokens.
REPRISE_FN uint32_t SplitLength(const SplitRule& rule, uint32_t visible) {
  const uint32_t even = RoundUp(CeilDiv(visible, rule.max_splits), rule.split_multiple);
  return even > rule.min_split_tokens ? even : rule.min_split_tokens;
}

// The splits of a row of one query token: `count` ranges of `length` tokens from `begin` on, the
// last one up to `end`.
struct RowSplits {
  uint32_t begin, end, length, count;
};
REPRISE_FN RowSplits SplitsOf(const SplitRule& rule, uint32_t window, uint32_t position) {
  RowSplits s;
  s.begin = FirstSeen(window, position);
  s.end = position + 1;
  s.length = SplitLength(rule, s.end - s.begin);
  s.count = CeilDiv(s.end - s.begin, s.length);
  return s;
}

// The item of split s of entry e, a row of one query token.
REPRISE_FN AttentionWorkItem DecodeItem(const QueryRow& row, uint32_t e, const RowSplits& splits,
                                        uint32_t s) {
  const uint32_t begin = splits.begin + s * splits.length;
  const uint32_t end = splits.end - begin > splits.length ? begin + splits.length : splits.end;
  return {e, 0, 1, begin, end, s, splits.count, row.row};
}

// ---- the deal of rows of one query token ----

// A leaf weighs its tokens and what beginning and ending it does, in units of kWeightTokens.
// overhead: BatchChoice.leaf_overhead.
REPRISE_FN uint32_t LeafWeight(uint32_t tokens, uint32_t overhead) {
  return (RoundUp(tokens, kLeafMultiple) + overhead) / kWeightTokens;
}

// How the rule cuts a row that sees these KV positions.
REPRISE_FN DecodeRow CutRow(const SplitRule& rule, uint32_t kv_begin, uint32_t kv_end) {
  DecodeRow r{};
  r.kv_begin = kv_begin;
  r.kv_end = kv_end;
  r.origin = r.kv_begin / kLeafMultiple * kLeafMultiple;
  const uint32_t tokens = r.kv_end - r.origin;
  r.leaf_tokens = SplitLength(rule, tokens);
  r.num_leaves = CeilDiv(tokens, r.leaf_tokens);
  return r;
}

// Of a row's own leaves, for one KV head.
REPRISE_FN uint32_t RowWeight(const DecodeRow& r, uint32_t overhead) {
  const uint32_t own = r.num_own_leaves();
  if (own == 0) return 0;
  const uint32_t last = r.kv_end - (r.origin + (r.num_leaves - 1) * r.leaf_tokens);
  return (own - 1) * LeafWeight(r.leaf_tokens, overhead) + LeafWeight(last, overhead);
}

// Of the splits that there is room for, half are for a prefix that tiles read, and half for what
// lies behind it.
REPRISE_FN SplitRule HalfOf(SplitRule rule) {
  rule.max_splits /= 2;
  return rule;
}

// The order of the deal, by weight. Weight: the type that holds that of all rows and heads.
template <typename Weight>
struct DecodeDeal {
  const DealtRow* rows;  // of every entry and tile
  uint32_t num_rows, num_kv_heads;
  uint32_t overhead;  // of a leaf
  Weight weight;      // of all

  // The first leaf that begins at or behind so much weight.
  REPRISE_FN DecodePlace At(Weight target) const {
    const DecodePlace end{num_rows, 0, 0, 0};
    if (target >= weight) return end;
    uint32_t low = 0, high = num_rows;  // the last entry that begins at or before it
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      if (Weight{rows[middle].weight_before} * num_kv_heads <= target) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const DealtRow row = rows[low];
    const auto in_row = static_cast<uint32_t>(target - Weight{row.weight_before} * num_kv_heads);
    DecodePlace p{low, in_row / row.weight, 0, 0};
    p.leaf = CeilDiv(in_row - p.kv_head * row.weight, LeafWeight(row.leaf_tokens, overhead));
    if (p.leaf < row.num_leaves) return p;
    p.leaf = 0;
    if (++p.kv_head < num_kv_heads) return p;
    p.kv_head = 0;
    // The next entry of any weight.
    while (++p.entry < num_rows && rows[p.entry].weight == 0) {
    }
    return p;
  }

  // Where the shares begin, and the last one ends: share s at s / taking of the weight. taking:
  // blocks that get any.
  REPRISE_FN void Places(Block& b, uint32_t num_shares, uint32_t taking,
                         DecodePlace* places) const {
    const Weight each = weight / taking;
    const auto left = static_cast<uint32_t>(weight - each * taking);
    b.For(static_cast<int>(num_shares) + 1, [&](int s) {
      const auto share = static_cast<uint32_t>(s);
      Weight target = each * share;
      if (left != 0 && share < taking) target += left * share / taking;
      places[s] = At(share < taking ? target : weight);
    });
  }
};

// What rows of one query token are to the deal, for one KV head.
struct DealtTotals {
  uint32_t rows, long_rows, leaves;  // long: of more than kWholeRowTokens
};

// Rows of no more tokens than this, alone, take less time than putting their parts together.
inline constexpr uint32_t kWholeRowTokens = 512;
REPRISE_FN bool IsLong(const DecodeRow& r) {
  return r.kv_end - (r.origin + r.first_leaf * r.leaf_tokens) > kWholeRowTokens;
}

// How many blocks take part where the tree does not say. A row that is cut between blocks costs
// time: its parts go to memory and are put together there. So the deal is made to come out even:
//   few leaves     no more than a quarter of the grid: the first quarter of it, where every leaf
//                  has a block, which was faster than the same leaves all over the grid;
//   short rows     all of them are, and no more than blocks: all blocks where leaves are no more
//                  than blocks, else one for every row and KV head. Alone all take longer, in a
//                  step they do not: KV comes while weights do, and to more multiprocessors at
//                  once;
//   otherwise      the largest part of a row (the whole, a half, a quarter and so on) that goes
//                  evenly into at least 15/16 of the blocks, as if all rows had as many leaves; all
//                  blocks where there is none.
// Rows of other lengths than most are dealt by weight as ever. docs/benchmarks/attention.md says
// what it gains. All threads have to call it.
REPRISE_FN uint32_t NumTaking(Block& b, const AttentionPlanRule& rule, const DealtTotals& dealt) {
  const uint32_t shares = rule.num_shares, heads = rule.num_kv_heads;
  const uint32_t rows = dealt.rows * heads, leaves = dealt.leaves * heads;
  constexpr int kHalvings = 8;
  if (rows == 0 || rows >= 1u << (32 - kHalvings)) return shares;
  if (leaves <= shares / 4) return shares / 4;
  if (dealt.long_rows == 0 && rows <= shares)
    return rows < leaves && leaves <= shares ? shares : rows;
  // How often rows are halved, and below it how many blocks that takes: the smallest word counts.
  struct Even {
    uint32_t word;
  };
  const uint32_t none = uint32_t{kHalvings} << 16 | shares;
  const Even even = b.Combine(
      kHalvings, Even{none},
      [&](int i) {
        const uint32_t parts = rows << i;
        const uint32_t each = CeilDiv(parts, shares);
        const uint32_t taking = parts / each;
        const bool fits =
            dealt.rows << i <= dealt.leaves && taking * each == parts && 16 * taking >= 15 * shares;
        return Even{fits ? static_cast<uint32_t>(i) << 16 | taking : none};
      },
      [](const Even& x, const Even& y) { return Even{x.word < y.word ? x.word : y.word}; });
  return even.word & 0xffffu;
}

// Deals the leaves of all rows of one query token to the first `taking` of rule.num_shares blocks.
// A share's weight differs from the mean by less than a leaf's. list: the rows as they were cut, by
// entry, and tiles behind them. places: [num_shares + 1] shared memory.
REPRISE_FN void PlanDecodeShares(Block& b, const AttentionPlanRule& rule, uint32_t taking,
                                 const DecodeDeal<uint64_t>& deal, const DecodeRow* list,
                                 DecodePlace* places, DecodeShare* shares) {
  if (deal.weight >> 32 == 0) {  // wide weights are slow to divide, and seldom needed
    const DecodeDeal<uint32_t> narrow{deal.rows, deal.num_rows, deal.num_kv_heads, deal.overhead,
                                      static_cast<uint32_t>(deal.weight)};
    narrow.Places(b, rule.num_shares, taking, places);
  } else {
    deal.Places(b, rule.num_shares, taking, places);
  }
  b.Sync();
  // Two threads a share, 16 bytes at a time: each writes a place, and half of the row.
  using Half = Vec<uint32_t, 4>;
  static_assert(sizeof(DecodeShare) == 4 * sizeof(Half));
  b.For(2 * static_cast<int>(rule.num_shares), [&](int i) {
    const int s = i / 2, half = i % 2;
    const DecodePlace begin = places[s];
    const DecodePlace end = places[s + 1];
    // A block with nothing to do looks at no row.
    const bool works = !(begin == end);
    const auto* const row = reinterpret_cast<const uint32_t*>(list + (works ? begin.entry : 0));
    const auto of_row = LoadVec<4>(row + 4 * half);
    auto* const share = reinterpret_cast<Half*>(shares + s);
    // Word by word: a place that is chosen by its address would lie in memory.
    share[half] = {{half == 0 ? begin.entry : end.entry, half == 0 ? begin.kv_head : end.kv_head,
                    half == 0 ? begin.leaf : end.leaf, 0}};
    share[2 + half] = {{works ? of_row.v[0] : 0, works ? of_row.v[1] : 0, works ? of_row.v[2] : 0,
                        works ? of_row.v[3] : 0}};
  });
}

// ---- rows of more than one query token ----

// A row's items: one per group of q_tokens query tokens or, where one holds them all, one per split
// of so many KV tokens, counted from origin.
struct PromptCut {
  uint32_t q_tokens, kv_begin, kv_end, origin, length, count;
};
REPRISE_FN PromptCut CutPrompt(const AttentionPlanRule& rule, uint32_t window,
                               const RowChoice& choice, uint32_t context_before,
                               uint32_t num_tokens) {
  PromptCut c{};
  c.q_tokens = choice.prompt_q_tokens != 0 ? choice.prompt_q_tokens : rule.prefill_q_tokens;
  c.count = CeilDiv(num_tokens, c.q_tokens);
  const uint32_t room = rule.max_splits / num_tokens;
  const uint32_t most = choice.prompt_splits < room ? choice.prompt_splits : room;
  if (c.count > 1 || most <= 1) return c;
  c.kv_begin = FirstSeen(window, context_before);
  c.kv_end = context_before + num_tokens;
  c.origin = c.kv_begin / kPromptSplitMultiple * kPromptSplitMultiple;
  c.length = SplitLength(
      {RoundUp(choice.split.min_split_tokens, kPromptSplitMultiple), most, kPromptSplitMultiple},
      c.kv_end - c.origin);
  c.count = CeilDiv(c.kv_end - c.origin, c.length);
  return c;
}

// Item i of entry e, a row of several query tokens.
REPRISE_FN AttentionWorkItem PrefillItem(uint32_t window, const QueryRow& row, uint32_t e,
                                         const PromptCut& c, uint32_t i) {
  const uint32_t n = row.num_tokens;
  AttentionWorkItem item{e, 0, n, c.kv_begin, 0, i, c.count, row.row};
  if (c.length == 0) {
    item.q_begin = i * c.q_tokens;
    item.q_count = n - item.q_begin < c.q_tokens ? n - item.q_begin : c.q_tokens;
    item.kv_begin = FirstSeen(window, row.context_before + item.q_begin);
    item.kv_end = row.context_before + item.q_begin + item.q_count;
    item.split = 0;
    item.num_splits = 1;
  } else {
    if (i != 0) item.kv_begin = c.origin + i * c.length;
    const uint32_t end = c.origin + (i + 1) * c.length;
    item.kv_end = end < c.kv_end ? end : c.kv_end;
  }
  return item;
}

// ---- a row's work ----

// What the tree makes of a row. Of one query token: leaves to deal where there is a deal, else
// splits. Of several: `prompt`.
struct RowWork {
  uint32_t leaf;  // of AttentionTree.rows
  DecodeRow dealt;
  uint32_t weight;  // of `dealt`
  RowSplits splits;
  PromptCut prompt;

  // In units of the deal, or items of decode_items.
  REPRISE_FN uint32_t decode_work() const { return weight + splits.count; }
};

struct AttentionDecisions {
  const AttentionTree& tree;  // in shared memory
  const AttentionPlanRule& rule;
  uint32_t window;  // of rule.windows
  BatchFeatures batch;

  REPRISE_FN uint32_t BatchLeaf() const { return tree.batch.LeafOf(batch); }

  REPRISE_FN uint32_t LeafOf(const QueryRow& row) const {
    return tree.rows.LeafOf(RowFeatures{batch, row.VisibleTokens(window), row.num_tokens});
  }
  // How a prefix is cut that tiles read, whoever shares it: a rule of its length alone.
  REPRISE_FN SplitRule SplitOfPrefix(uint32_t tokens) const {
    return tree.rows.leaves[tree.rows.LeafOf(RowFeatures{batch, tokens, 1})].split;
  }
  REPRISE_FN DecodeRow CutPrefix(uint32_t tokens) const {
    return CutRow(HalfOf(SplitOfPrefix(tokens)), 0, tokens);
  }

  // tile_tokens: the prefix of the row that tiles read; what lies behind it is the row's own.
  REPRISE_FN DecodeRow CutBehind(const SplitRule& split, uint32_t tile_tokens,
                                 uint32_t position) const {
    if (tile_tokens == 0) return CutRow(split, FirstSeen(window, position), position + 1);
    DecodeRow r = CutRow(HalfOf(split), tile_tokens, position + 1);
    const uint32_t before = CutPrefix(tile_tokens).num_leaves;
    r.first_leaf = static_cast<uint16_t>(before);
    r.num_leaves += before;
    r.origin -= before * r.leaf_tokens;
    return r;
  }

  // of_batch: the leaf of the batch. tile_tokens: as CutBehind's.
  REPRISE_FN RowWork WorkOf(const QueryRow& row, const BatchChoice& of_batch,
                            uint32_t tile_tokens) const {
    RowWork work{};
    work.leaf = LeafOf(row);
    const RowChoice& choice = tree.rows.leaves[work.leaf];
    if (row.num_tokens > 1) {
      work.prompt = CutPrompt(rule, window, choice, row.context_before, row.num_tokens);
    } else if (row.decodes() && rule.num_shares == 0) {
      work.splits = SplitsOf(choice.split, window, row.context_before);
    } else if (row.decodes()) {
      work.dealt = CutBehind(choice.split, tile_tokens, row.context_before);
      work.dealt.row = row.row;
      work.weight = RowWeight(work.dealt, of_batch.leaf_overhead);
    }
    return work;
  }
};

// ---- tiles ----

// The rows of a step that share their first tokens, and what becomes of them. row(e): the QueryRow
// of an entry.
template <typename RowOf>
struct TilePlan {
  const AttentionDecisions& decide;
  const PrefixMember* members;
  int count;
  RowOf row;
  uint32_t* tile_tokens;  // [entries] what tiles read of each row

  // Nothing of a row that does not see all of it, nor where the tree leaves no room for two parts.
  REPRISE_FN uint32_t TokensOf(const PrefixMember& member) const {
    const QueryRow r = row(static_cast<int>(member.entry));
    const uint32_t tokens =
        member.tokens >= decide.rule.min_tile_tokens ? TilePrefix(member.tokens) : 0;
    const bool alone = !r.decodes() || tokens == 0 || tokens > r.context_before ||
                       FirstSeen(decide.window, r.context_before) != 0;
    if (alone || decide.SplitOfPrefix(tokens).max_splits < 2 ||
        decide.tree.rows.leaves[decide.LeafOf(r)].split.max_splits < 2)
      return 0;
    return tokens;
  }

  // Fills in tile_tokens and AttentionArgs.prefix_members. A barrier is behind it.
  REPRISE_FN void Choose(Block& b, int num_rows, uint32_t* listed) const {
    b.For(num_rows, [&](int e) { tile_tokens[e] = 0; });
    b.Sync();
    b.For(count, [&](int m) {
      const PrefixMember member = members[m];
      const uint32_t tokens = TokensOf(member);
      tile_tokens[member.entry] = tokens;
      listed[m] = tokens != 0 ? member.entry : kNoMember;
    });
    b.Sync();
  }

  // The tile of the members from `first` on.
  REPRISE_FN DecodeRow TileOf(int first) const {
    const PrefixMember member = members[first];
    const uint32_t left = member.count - member.index, most = decide.rule.tile_members;
    const uint32_t num_members = left < most ? left : most;
    DecodeRow tile{};
    for (uint32_t m = 0; m < num_members && tile.num_leaves == 0; ++m) {
      const uint32_t e = members[first + static_cast<int>(m)].entry;
      if (tile_tokens[e] == 0) continue;
      tile = decide.CutPrefix(tile_tokens[e]);
      tile.row = row(static_cast<int>(e)).row;
      tile.num_members = static_cast<uint16_t>(num_members);
    }
    tile.query = static_cast<uint32_t>(first);
    return tile;
  }

  // Lists the tiles, behind the rows in both lists; weight: of the rows before, to which that of
  // the tiles is added. Returns how many there are. A barrier is behind it.
  REPRISE_FN uint32_t List(Block& b, uint32_t overhead, DecodeRow* list, DealtRow* dealt,
                           uint32_t* weight) const {
    const uint32_t most = decide.rule.tile_members;
    const auto begins = [&](int m) { return members[m].index % most == 0 ? 1u : 0u; };
    const uint32_t num_tiles = b.ExclusiveScan(count, begins, [&](int m, uint32_t t) {
      if (begins(m) != 0) list[t] = TileOf(m);
    });
    b.Sync();
    const uint32_t rows_weight = *weight;
    *weight += b.ExclusiveScan(
        static_cast<int>(num_tiles), [&](int t) { return RowWeight(list[t], overhead); },
        [&](int t, uint32_t before) {
          const DecodeRow tile = list[t];
          dealt[t] = {rows_weight + before, RowWeight(tile, overhead), tile.leaf_tokens,
                      tile.num_leaves};
        });
    b.Sync();
    return num_tiles;
  }
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_
