// SPDX-License-Identifier: Apache-2.0
// Attention's part of the plan, block style: lists the work items of the rows that run. Rows come
// as an object of three functions of an entry's index: num_tokens (query tokens), context_before
// (KV tokens before them) and row (the resident row). plan/plan_body.h calls it.
#ifndef REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_
#define REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_

#include "kernels/attention/plan.h"
#include "kernels/device/block.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FN uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

REPRISE_FN uint32_t RoundUp(uint32_t x, uint32_t multiple) {
  return CeilDiv(x, multiple) * multiple;
}

// ---- what the tree decides by, and what it decides ----

// KV tokens that the query tokens of a row see.
REPRISE_FN uint32_t VisibleTokens(uint32_t window, uint32_t context_before, uint32_t num_tokens) {
  return context_before + num_tokens - FirstSeen(window, context_before);
}

struct BatchFeatures {
  uint32_t rows, decode_tokens, longest_decode, prompt_tokens;

  REPRISE_FN uint32_t operator()(AttentionFeature feature) const {
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

struct RowFeatures {
  BatchFeatures batch;
  uint32_t visible_tokens, query_tokens;

  REPRISE_FN uint32_t operator()(AttentionFeature feature) const {
    if (feature == AttentionFeature::kVisibleTokens) return visible_tokens;
    return feature == AttentionFeature::kQueryTokens ? query_tokens : batch(feature);
  }
};

// The tree at work on the rows of a step.
template <typename Rows>
struct AttentionDecisions {
  const AttentionTree& tree;  // in shared memory
  const Rows& rows;
  uint32_t window;
  BatchFeatures batch;

  REPRISE_FN uint32_t RowLeaf(int e) const {
    const uint32_t tokens = rows.num_tokens(e);
    return tree.rows.LeafOf(
        RowFeatures{batch, VisibleTokens(window, rows.context_before(e), tokens), tokens});
  }
  REPRISE_FN RowChoice OfRow(int e) const { return tree.rows.leaves[RowLeaf(e)]; }
  // Of a prefix, whoever shares it.
  REPRISE_FN RowChoice OfPrefix(uint32_t tokens) const {
    return tree.rows.leaves[tree.rows.LeafOf(RowFeatures{batch, tokens, 1})];
  }
  REPRISE_FN uint32_t BatchLeaf() const { return tree.batch.LeafOf(batch); }
  REPRISE_FN BatchChoice OfBatch() const { return tree.batch.leaves[BatchLeaf()]; }
};

// Copies the tree to shared memory; a Sync must follow before it is looked at.
REPRISE_FN const AttentionTree& LoadTree(Block& b, const AttentionPlanRule& rule) {
  auto* to = b.Shared<uint32_t>();
  const auto* from = reinterpret_cast<const uint32_t*>(rule.tree);
  b.For(static_cast<int>(sizeof(AttentionTree) / sizeof(uint32_t)),
        [&](int i) { to[i] = from[i]; });
  return *reinterpret_cast<const AttentionTree*>(to);
}

// Counts the batch where a node asks for it.
template <typename Rows>
REPRISE_FN AttentionDecisions<Rows> Decide(Block& b, const AttentionPlanRule& rule,
                                           const AttentionTree& tree, const Rows& rows,
                                           int num_rows) {
  AttentionDecisions<Rows> d{tree, rows, rule.window, {}};
  if (tree.asks_for_batch == 0) return d;
  const auto visible = [&](int e) {
    return rows.num_tokens(e) == 1 ? VisibleTokens(rule.window, rows.context_before(e), 1) : 0u;
  };
  const auto nothing = [](int, uint32_t) {};
  d.batch.rows = static_cast<uint32_t>(num_rows);
  d.batch.decode_tokens = b.ExclusiveScan(num_rows, visible, nothing);
  d.batch.prompt_tokens = b.ExclusiveScan(
      num_rows, [&](int e) { return rows.num_tokens(e) > 1 ? rows.num_tokens(e) : 0u; }, nothing);
  const float longest = b.Max(num_rows, [&](int e) { return static_cast<float>(visible(e)); });
  d.batch.longest_decode = longest > 0 ? static_cast<uint32_t>(longest) : 0;
  return d;
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

// Rows of one query token: an item per split. Returns how many items there are.
template <typename Rows>
REPRISE_FN uint32_t PlanDecodeItems(Block& b, const AttentionDecisions<Rows>& decide, int num_rows,
                                    AttentionWorkItem* items) {
  const Rows& rows = decide.rows;
  const auto splits_of = [&](int e) {
    return SplitsOf(decide.OfRow(e).split, decide.window, rows.context_before(e));
  };
  return b.ExclusiveScan(
      num_rows, [&](int e) { return rows.num_tokens(e) == 1 ? splits_of(e).count : 0u; },
      [&](int e, uint32_t first) {
        if (rows.num_tokens(e) != 1) return;
        const RowSplits row = splits_of(e);
        for (uint32_t s = 0; s < row.count; ++s) {
          const uint32_t begin = row.begin + s * row.length;
          const uint32_t end = row.end - begin > row.length ? begin + row.length : row.end;
          items[first + s] = AttentionWorkItem{
              static_cast<uint32_t>(e), 0, 1, begin, end, s, row.count, rows.row(e)};
        }
      });
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

// How a prefix is cut that tiles read: a rule of its length alone.
template <typename Rows>
REPRISE_FN DecodeRow CutPrefix(const AttentionDecisions<Rows>& decide, uint32_t tokens) {
  return CutRow(HalfOf(decide.OfPrefix(tokens).split), 0, tokens);
}

// Entry e, of one query token. tile_tokens: the prefix of it that tiles read.
template <typename Rows>
REPRISE_FN DecodeRow CutEntry(const AttentionDecisions<Rows>& decide, int e, uint32_t tile_tokens) {
  const SplitRule rule = decide.OfRow(e).split;
  const uint32_t position = decide.rows.context_before(e);
  if (tile_tokens == 0) return CutRow(rule, FirstSeen(decide.window, position), position + 1);
  DecodeRow r = CutRow(HalfOf(rule), tile_tokens, position + 1);
  const uint32_t before = CutPrefix(decide, tile_tokens).num_leaves;
  r.first_leaf = static_cast<uint16_t>(before);
  r.num_leaves += before;
  r.origin -= before * r.leaf_tokens;
  return r;
}

// The rows of a step that share their first tokens.
struct PlannedPrefixes {
  const PrefixMember* members;
  int count;
  uint32_t* listed;  // [count] see AttentionArgs.prefix_members
};

// What tiles read of a member's row: nothing where it does not see all of it, or where the tree
// leaves no room for two parts.
template <typename Rows>
REPRISE_FN uint32_t TileTokens(const AttentionDecisions<Rows>& decide, const PrefixMember& member) {
  const int e = static_cast<int>(member.entry);
  const uint32_t tokens = TilePrefix(member.tokens), position = decide.rows.context_before(e);
  const bool alone = decide.rows.num_tokens(e) != 1 || tokens == 0 || tokens > position ||
                     FirstSeen(decide.window, position) != 0;
  if (alone || decide.OfPrefix(tokens).split.max_splits < 2 || decide.OfRow(e).split.max_splits < 2)
    return 0;
  return tokens;
}

// A tile of the members from `first` on; without leaves where none of them takes part.
template <typename Rows>
REPRISE_FN DecodeRow TileOf(const AttentionDecisions<Rows>& decide, const PlannedPrefixes& prefixes,
                            uint32_t tile_members, int first, const uint32_t* tile_tokens) {
  const PrefixMember member = prefixes.members[first];
  const uint32_t left = member.count - member.index;
  const uint32_t count = left < tile_members ? left : tile_members;
  DecodeRow tile{};
  for (uint32_t m = 0; m < count && tile.num_leaves == 0; ++m) {
    const uint32_t e = prefixes.members[first + static_cast<int>(m)].entry;
    if (tile_tokens[e] == 0) continue;
    tile = CutPrefix(decide, tile_tokens[e]);
    tile.row = decide.rows.row(static_cast<int>(e));
    tile.num_members = static_cast<uint16_t>(count);
  }
  tile.query = static_cast<uint32_t>(first);
  return tile;
}

// Lists the tiles at `list`, and their members. tile_tokens: [entries] what tiles read of each
// row, filled in. Returns how many tiles there are. A barrier is behind it.
template <typename Rows>
REPRISE_FN uint32_t PlanTiles(Block& b, const AttentionPlanRule& rule,
                              const AttentionDecisions<Rows>& decide, int num_rows,
                              const PlannedPrefixes& prefixes, DecodeRow* list,
                              uint32_t* tile_tokens) {
  b.For(num_rows, [&](int e) { tile_tokens[e] = 0; });
  b.Sync();
  b.For(prefixes.count, [&](int m) {
    const PrefixMember member = prefixes.members[m];
    const uint32_t tokens = TileTokens(decide, member);
    tile_tokens[member.entry] = tokens;
    prefixes.listed[m] = tokens != 0 ? member.entry : kNoMember;
  });
  b.Sync();
  const auto begins = [&](int m) {
    return prefixes.members[m].index % rule.tile_members == 0 ? 1u : 0u;
  };
  const uint32_t num_tiles = b.ExclusiveScan(prefixes.count, begins, [&](int m, uint32_t t) {
    if (begins(m) != 0) list[t] = TileOf(decide, prefixes, rule.tile_members, m, tile_tokens);
  });
  b.Sync();
  return num_tiles;
}

// The order of the deal, by weight.
struct DecodeDeal {
  const DealtRow* rows;  // of every entry and tile
  uint32_t num_rows, num_kv_heads;
  uint32_t overhead;  // of a leaf
  uint64_t weight;    // of all

  // The first leaf that begins at or behind so much weight.
  REPRISE_FN DecodePlace At(uint64_t target) const {
    const DecodePlace end{num_rows, 0, 0, 0};
    if (target >= weight) return end;
    uint32_t low = 0, high = num_rows;  // the last entry that begins at or before it
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      if (uint64_t{rows[middle].weight_before} * num_kv_heads <= target) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const DealtRow row = rows[low];
    const auto in_row = static_cast<uint32_t>(target - uint64_t{row.weight_before} * num_kv_heads);
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

  // floor(weight * share / shares), shares at most kMaxDecodeShares. In 32 bits where they do,
  // since 64 are slow to divide.
  REPRISE_FN uint64_t TargetOf(uint32_t share, uint32_t shares) const {
    const uint64_t each =
        weight >> 32 == 0 ? static_cast<uint32_t>(weight) / shares : weight / shares;
    const auto left = static_cast<uint32_t>(weight - each * shares);
    return each * share + left * share / shares;
  }
};

// Deals the leaves of rows of one query token to rule.num_shares blocks, or to the first of them,
// as the tree says. A share's weight differs from the mean by less than a leaf's. query_start: as
// StepPlan's. max_rows: of the list, which has room for as many tiles. scratch: shared memory,
// AttentionPlanBytes without the tree.
template <typename Rows>
REPRISE_FN void PlanDecodeShares(Block& b, const AttentionPlanRule& rule,
                                 const AttentionDecisions<Rows>& decide, int num_rows,
                                 uint32_t max_rows, const uint32_t* query_start,
                                 const PlannedPrefixes& prefixes, DecodeRow* list,
                                 DecodeShare* shares, unsigned char* scratch) {
  auto* places = reinterpret_cast<DecodePlace*>(scratch);
  auto* dealt = reinterpret_cast<DealtRow*>(places + rule.num_shares + 1);
  auto* tile_tokens = reinterpret_cast<uint32_t*>(dealt + 2 * uint64_t{max_rows});
  const Rows& rows = decide.rows;
  const bool has_tiles = rule.tile_members != 0 && prefixes.count != 0;
  const uint32_t num_tiles =
      has_tiles ? PlanTiles(b, rule, decide, num_rows, prefixes, list + num_rows, tile_tokens) : 0;
  const int num_dealt = num_rows + static_cast<int>(num_tiles);
  const BatchChoice batch = decide.OfBatch();
  const uint32_t taking = batch.shares != 0 ? batch.shares : rule.num_shares;
  const uint32_t row_weight = b.ExclusiveScan(
      num_dealt,
      [&](int e) {
        DecodeRow row;
        if (e < num_rows) {
          row = CutEntry(decide, e, has_tiles ? tile_tokens[e] : 0);
          row.row = rows.row(e);
          row.query = query_start[e];
          if (rows.num_tokens(e) != 1) row.num_leaves = 0;
          list[e] = row;
        } else {
          row = list[e];
        }
        const uint32_t weight = RowWeight(row, batch.leaf_overhead);
        dealt[e] = {0, weight, row.leaf_tokens, row.num_own_leaves()};
        return weight;
      },
      [&](int e, uint32_t before) { dealt[e].weight_before = before; });
  const DecodeDeal deal{dealt, static_cast<uint32_t>(num_dealt), rule.num_kv_heads,
                        batch.leaf_overhead, uint64_t{row_weight} * rule.num_kv_heads};
  b.For(static_cast<int>(rule.num_shares) + 1, [&](int s) {
    const auto share = static_cast<uint32_t>(s);
    places[s] = deal.At(share < taking ? deal.TargetOf(share, taking) : deal.weight);
  });
  b.Sync();
  b.For(static_cast<int>(rule.num_shares), [&](int s) {
    // A block with nothing to do looks at no row, so any will do.
    const uint32_t entry = places[s].entry, last = deal.num_rows - 1;
    shares[s].begin = places[s];
    shares[s].end = places[s + 1];
    if (deal.num_rows != 0) shares[s].row = list[entry < last ? entry : last];
  });
}

// ---- rows of more than one query token ----

// A row's items: one per group of q_tokens query tokens or, where one holds them all, one per split
// of so many KV tokens, counted from origin.
struct PromptCut {
  uint32_t q_tokens, kv_begin, kv_end, origin, length, count;
};
REPRISE_FN PromptCut CutPrompt(const AttentionPlanRule& rule, const RowChoice& choice,
                               uint32_t context_before, uint32_t num_tokens) {
  PromptCut c{};
  c.q_tokens = choice.prompt_q_tokens != 0 ? choice.prompt_q_tokens : rule.prefill_q_tokens;
  c.count = CeilDiv(num_tokens, c.q_tokens);
  const uint32_t room = rule.max_splits / num_tokens;
  const uint32_t most = choice.prompt_splits < room ? choice.prompt_splits : room;
  if (c.count > 1 || most <= 1) return c;
  c.kv_begin = FirstSeen(rule.window, context_before);
  c.kv_end = context_before + num_tokens;
  c.origin = c.kv_begin / kPromptSplitMultiple * kPromptSplitMultiple;
  c.length = SplitLength(
      {RoundUp(choice.split.min_split_tokens, kPromptSplitMultiple), most, kPromptSplitMultiple},
      c.kv_end - c.origin);
  c.count = CeilDiv(c.kv_end - c.origin, c.length);
  return c;
}

// Returns how many items there are.
template <typename Rows>
REPRISE_FN uint32_t PlanPrefillItems(Block& b, const AttentionPlanRule& rule,
                                     const AttentionDecisions<Rows>& decide, int num_rows,
                                     AttentionWorkItem* items) {
  const Rows& rows = decide.rows;
  const auto cut = [&](int e) {
    return CutPrompt(rule, decide.OfRow(e), rows.context_before(e), rows.num_tokens(e));
  };
  return b.ExclusiveScan(
      num_rows, [&](int e) { return rows.num_tokens(e) > 1 ? cut(e).count : 0u; },
      [&](int e, uint32_t first) {
        const uint32_t n = rows.num_tokens(e);
        if (n <= 1) return;
        const PromptCut c = cut(e);
        for (uint32_t i = 0; i < c.count; ++i) {
          AttentionWorkItem item{
              static_cast<uint32_t>(e), 0, n, c.kv_begin, 0, i, c.count, rows.row(e)};
          if (c.length == 0) {
            item.q_begin = i * c.q_tokens;
            item.q_count = n - item.q_begin < c.q_tokens ? n - item.q_begin : c.q_tokens;
            item.kv_begin = FirstSeen(rule.window, rows.context_before(e) + item.q_begin);
            item.kv_end = rows.context_before(e) + item.q_begin + item.q_count;
            item.split = 0;
            item.num_splits = 1;
          } else {
            if (i != 0) item.kv_begin = c.origin + i * c.length;
            const uint32_t end = c.origin + (i + 1) * c.length;
            item.kv_end = end < c.kv_end ? end : c.kv_end;
          }
          items[first + i] = item;
        }
      });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_
