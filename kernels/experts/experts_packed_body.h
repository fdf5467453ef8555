// SPDX-License-Identifier: Apache-2.0
// Experts' linear layers on matrix units over packed weights, thread style: the tiles and the K
// order of linear_packed_body.h. As many blocks as run at once take tiles of outputs of items in
// turns. Neighbours have the same tile of all items of an expert, so that its weights come from
// memory once, and then the next one, so that they share tokens in the cache.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERTS_PACKED_BODY_H_
#define REPRISE_KERNELS_EXPERTS_EXPERTS_PACKED_BODY_H_

#include "kernels/experts/expert_place.h"
#include "kernels/linear/linear_packed_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Items have at most kTileRows places. W: of weights, T,
// E4m3, Int4 or Mxfp4.
template <typename T, typename W, int kTileRows>
REPRISE_FN void ExpertsPackedBody(const ExpertsLinearArgs& a, unsigned char* shared) {
  constexpr int kFeatures = PackedTileFeatures(kTileRows);
  constexpr int kStages = PackedStages(kTraits, kTileRows, kElementBits<W>);
  using Tile = MatrixTile<T, W, kTileRows, kFeatures, kStages, WeightLayout::kPacked, ExpertRows>;
  static_assert(Tile::kStageBytes == PackedStageBytes(kTileRows, kElementBits<W>));
  if (!a.linear.reads_ahead) WaitForPrevious();
  const auto tiles = static_cast<uint32_t>((a.linear.out_features + kFeatures - 1) / kFeatures);
  const uint32_t units = a.counts->num_items * tiles;
  if (static_cast<uint32_t>(BlockX()) >= units) {
    if (BlockX() == 0) WaitForPrevious();
    return;
  }
  for (uint32_t unit = static_cast<uint32_t>(BlockX()); unit < units;
       unit += static_cast<uint32_t>(GridX())) {
    const uint32_t any = unit / tiles;
    const ExpertItem of_unit = a.items[any];
    const uint32_t first_item = any - of_unit.index;
    const uint32_t of_expert = unit - first_item * tiles;  // which of the expert's units
    const uint32_t tile = of_expert / of_unit.of_expert;
    const ExpertItem item = a.items[first_item + of_expert % of_unit.of_expert];
    const LinearArgs of_item = LinearOf<T, W>(a, item);
    const Tile linear(of_item, static_cast<int>(item.count), 0, shared, RowsOf(a, item));
    PackedLinearTile<T, W>(linear, tile);
    SyncBlock();  // the stages are free for the next tile
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_EXPERTS_EXPERTS_PACKED_BODY_H_
