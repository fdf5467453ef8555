// SPDX-License-Identifier: Apache-2.0
// Shape of the portable attention kernel, as host and device both need it: its KV tiles, and how
// many query rows a block can hold. The host plans passes by it (attention.cc), the body places its
// buffers by it (portable_body.h).
#ifndef REPRISE_KERNELS_ATTENTION_PORTABLE_GEOMETRY_H_
#define REPRISE_KERNELS_ATTENTION_PORTABLE_GEOMETRY_H_

#include <cstddef>

#include "kernels/attention/attention_args.h"

namespace reprise::kernels {

inline constexpr int kPortableKvTile = 32;  // KV tokens of one tile

// Dynamic shared memory of one query row, in bytes: query and sums of head_dim floats each, scores
// of a tile, and three more.
constexpr size_t PortableAttentionRowBytes(int head_dim) {
  return (2 * static_cast<size_t>(head_dim) + kPortableKvTile + 3) * sizeof(float);
}

// What the kernel's static variables take of a block's shared memory at most: one word, which
// compilers round up to the alignment of the dynamic part.
inline constexpr size_t kPortableStaticBytes = 1024;

// Query rows (query tokens x heads of a group) of one pass, of items of at most `rows`: all of them
// where they fit in `shared_bytes` of one block, otherwise as few passes as fit, evenly filled. 0
// where not even one row fits.
constexpr int PortableAttentionPassRows(int rows, int head_dim, size_t shared_bytes) {
  if (shared_bytes < kPortableStaticBytes) return 0;
  const size_t fit = (shared_bytes - kPortableStaticBytes) / PortableAttentionRowBytes(head_dim);
  if (fit == 0) return 0;
  const size_t all = static_cast<size_t>(rows);
  const size_t passes = (all + fit - 1) / fit;
  return static_cast<int>((all + passes - 1) / passes);
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_PORTABLE_GEOMETRY_H_
