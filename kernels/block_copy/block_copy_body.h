// SPDX-License-Identifier: Apache-2.0
// Bodies of the block copies, block style: thread blocks take pieces of kBlockCopyPiece bytes.
#ifndef REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_BODY_H_
#define REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_BODY_H_

#include "kernels/block_copy/block_copy_args.h"
#include "kernels/device/block.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Blocks whose bytes are whole chunks of 16 move in chunks: pools, rows of layers and mapped
// buffers begin at multiples of 16.
REPRISE_FN void CopyBytes(Block& b, const unsigned char* from, unsigned char* to, int bytes,
                          bool in_chunks) {
  if (in_chunks) {
    const auto* source = reinterpret_cast<const uint32_t*>(from);
    auto* target = reinterpret_cast<uint32_t*>(to);
    b.For(bytes / 16, [&](int i) { StoreVec(target + 4 * i, LoadVec<4>(source + 4 * i)); });
  } else {
    b.For(bytes, [&](int i) { to[i] = from[i]; });
  }
}

REPRISE_FN void BlockCopyBody(Block& b, const BlockCopyArgs& a) {
  const int64_t pieces = (a.block_bytes + kBlockCopyPiece - 1) / kBlockCopyPiece;
  const int64_t total = pieces * a.count * a.layers;
  const bool in_chunks = a.block_bytes % 16 == 0;
  for (int64_t i = b.x(); i < total; i += b.grid_x()) {
    const int64_t base = i % pieces * kBlockCopyPiece;
    const int64_t pair = i / pieces % a.count, layer = i / pieces / a.count;
    const int64_t left = a.block_bytes - base;
    CopyBytes(b,
              static_cast<const unsigned char*>(a.from) + layer * a.from_layer_bytes +
                  static_cast<int64_t>(a.pair[pair].from) * a.block_bytes + base,
              static_cast<unsigned char*>(a.to) + layer * a.to_layer_bytes +
                  static_cast<int64_t>(a.pair[pair].to) * a.block_bytes + base,
              static_cast<int>(left < kBlockCopyPiece ? left : kBlockCopyPiece), in_chunks);
  }
}

REPRISE_FN void NotifyHostBody(Block& b, const NotifyHostArgs& a) {
  b.PublishToHost(a.word, a.value);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_BODY_H_
