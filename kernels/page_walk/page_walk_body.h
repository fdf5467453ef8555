// SPDX-License-Identifier: Apache-2.0
// Body of the page walk, block style: runs are dealt round over a static grid, and eight vectors
// per thread and turn are in flight. A run is short (4 KiB for heads of 128 in 16 bits), so few
// pages already keep many blocks busy.
#ifndef REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_BODY_H_
#define REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_BODY_H_

#include "kernels/device/block.h"
#include "kernels/page_walk/page_walk_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Whether the word of a group of one run is the pattern; never of a group without live tokens.
REPRISE_FN bool WalkGroup(const PageWalkArgs& a, uint32_t run, uint32_t group) {
  const uint32_t runs = 2 * static_cast<uint32_t>(a.kv.num_kv_heads);
  const uint32_t page = run / runs;
  const Vec<uint32_t, 4> raw = LoadVec<4>(reinterpret_cast<const uint32_t*>(a.pages + page));
  // Of a panel; a layout without has one in a run.
  const uint32_t begin = raw.v[1] * a.token_vectors, end = raw.v[2] * a.token_vectors;
  const bool whole = end - begin == a.panel_vectors;
  // The heads of V follow those of K.
  const int64_t first = a.kv.HeadOffset(raw.v[0], kKeys, static_cast<int>(run - page * runs));
  const auto* data = static_cast<const uint32_t*>(a.kv_cache) + first * a.kv.ElementBytes() / 4;
  Vec<uint32_t, 4> x[kPageWalkVectors];
  bool live = false;
  REPRISE_UNROLL
  for (int k = 0; k < kPageWalkVectors; ++k) {
    const uint32_t at = group + static_cast<uint32_t>(k) * a.run_groups;
    x[k] = Vec<uint32_t, 4>{};
    if (at >= a.run_vectors) continue;
    const uint32_t in_panel = whole ? begin : at % a.panel_vectors;
    if (in_panel < begin || in_panel >= end) continue;
    x[k] = LoadVec<4>(data + at * 4);
    live = true;
  }
  uint32_t word = 0;
  REPRISE_UNROLL
  for (int k = 0; k < kPageWalkVectors; ++k) word ^= x[k].v[0] ^ x[k].v[1] ^ x[k].v[2] ^ x[k].v[3];
  return live && word == a.pattern;
}

REPRISE_FN void PageWalkBody(Block& b, const PageWalkArgs& a) {
  const uint32_t block = static_cast<uint32_t>(b.x()), grid = static_cast<uint32_t>(b.grid_x());
  const uint32_t total = *a.num_pages * 2 * static_cast<uint32_t>(a.kv.num_kv_heads);
  const uint32_t mine = total > block ? (total - block + grid - 1) / grid : 0;
  uint32_t matches = 0;
  for (uint32_t first = 0; first < mine; first += kPageWalkRound) {
    const uint32_t round = mine - first < kPageWalkRound ? mine - first : kPageWalkRound;
    matches += static_cast<uint32_t>(b.Sum(static_cast<int>(round * a.run_groups), [&](int i) {
      const uint32_t turn = static_cast<uint32_t>(i) / a.run_groups;
      const uint32_t group = static_cast<uint32_t>(i) - turn * a.run_groups;
      return WalkGroup(a, block + (first + turn) * grid, group) ? 1.0f : 0.0f;
    }));
  }
  b.Once([&] { a.matches[block] = matches; });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_BODY_H_
