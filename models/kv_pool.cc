// SPDX-License-Identifier: Apache-2.0
#include "models/kv_pool.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {

absl::StatusOr<KvPool> KvPool::CreateWithoutMemory(const KvGeometry& geometry,
                                                   uint64_t num_blocks) {
  constexpr uint64_t kMaxBlocks = uint64_t{1} << 31;
  if (geometry.num_layers < 1 || geometry.num_kv_heads < 1 || geometry.head_dim < 1 ||
      geometry.block_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV geometry of ", geometry.num_layers, " layers, ", geometry.num_kv_heads, " heads of ",
        geometry.head_dim, ", block size ", geometry.block_size, "; allowed: all at least 1"));
  }
  if (num_blocks < 2 || num_blocks > kMaxBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV pool of ", num_blocks, " blocks; allowed: 2 (the scratch block and one ",
                     "more) to ", kMaxBlocks));
  }
  if (geometry.BlockBytes() > std::numeric_limits<uint64_t>::max() / num_blocks) {
    return absl::ResourceExhaustedError(absl::StrCat("KV pool of ", num_blocks, " blocks of ",
                                                     geometry.BlockBytes(), " bytes overflows"));
  }
  KvPool pool;
  pool.geometry_ = geometry;
  pool.num_blocks_ = static_cast<uint32_t>(num_blocks);
  return pool;
}

absl::StatusOr<KvPool> KvPool::Create(runtime::Device& device, const KvGeometry& geometry,
                                      uint64_t num_blocks) {
  REPRISE_ASSIGN_OR_RETURN(KvPool pool, CreateWithoutMemory(geometry, num_blocks));
  REPRISE_ASSIGN_OR_RETURN(pool.buffer_, runtime::DeviceBuffer::Create(device, pool.bytes()));
  return pool;
}

}  // namespace reprise::models
