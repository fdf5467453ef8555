// SPDX-License-Identifier: Apache-2.0
// KvPool: the memory of the paged KV cache, every layer laid out as KvLayout says, with blocks of
// any size. Block 0 is the scratch block: never handed out, never read. The pool does not know who
// holds which block: the engine does (engine/state/block_ledger.h).
#ifndef REPRISE_MODELS_KV_POOL_H_
#define REPRISE_MODELS_KV_POOL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/attention/kv_layout.h"
#include "models/config/model_spec.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/buffer.h"

namespace reprise::models {

struct KvGeometry {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t block_size = 0;  // tokens
  runtime::DType dtype = runtime::DType::kBf16;
  bool swizzled = false;  // see KvLayout

  static KvGeometry For(const ModelSpec& spec, int64_t block_size, runtime::DType dtype) {
    return {spec.NumAttentionLayers(), spec.num_kv_heads, spec.head_dim, block_size, dtype, false};
  }
  // Of every layer. Dimensions are below 2^31.
  kernels::KvLayout layout() const {
    return {.num_kv_heads = static_cast<int32_t>(num_kv_heads),
            .head_dim = static_cast<int32_t>(head_dim),
            .block_size = static_cast<int32_t>(block_size),
            .dtype = dtype,
            .swizzled = swizzled};
  }
  // Elements of one block in one layer, K and V.
  int64_t BlockElements() const { return layout().BlockElements(); }
  // Bytes of one block in all layers.
  uint64_t BlockBytes() const {
    return static_cast<uint64_t>(num_layers * BlockElements()) * runtime::SizeOf(dtype);
  }
};

class KvPool {
 public:
  KvPool() = default;
  // Errors: InvalidArgument on a geometry without blocks, or fewer than 2 blocks (scratch and one
  // more) or more than 2^31; ResourceExhausted (asked, free).
  static absl::StatusOr<KvPool> Create(runtime::Device& device, const KvGeometry& geometry,
                                       uint64_t num_blocks);
  // A pool of which nothing may be read or written, for steps that compute nothing. Errors: as
  // above, but for ResourceExhausted where the device has no room.
  static absl::StatusOr<KvPool> CreateWithoutMemory(const KvGeometry& geometry,
                                                    uint64_t num_blocks);

  const KvGeometry& geometry() const { return geometry_; }
  uint32_t num_blocks() const { return num_blocks_; }
  // What its blocks take, or would take.
  uint64_t bytes() const { return geometry_.BlockBytes() * num_blocks_; }
  // First element of a layer.
  void* Layer(int64_t layer) const {
    return buffer_.as<std::byte>() + LayerBytes() * static_cast<uint64_t>(layer);
  }
  // First element of one block in one layer; BlockElements() follow.
  void* Block(int64_t layer, uint32_t block) const {
    return static_cast<std::byte*>(Layer(layer)) +
           static_cast<uint64_t>(geometry_.layout().Offset(block, kernels::kKeys, 0, 0, 0)) *
               runtime::SizeOf(geometry_.dtype);
  }

 private:
  uint64_t LayerBytes() const {
    return static_cast<uint64_t>(num_blocks_) * static_cast<uint64_t>(geometry_.BlockElements()) *
           runtime::SizeOf(geometry_.dtype);
  }
  KvGeometry geometry_;
  uint32_t num_blocks_ = 0;
  runtime::DeviceBuffer buffer_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_KV_POOL_H_
