// SPDX-License-Identifier: Apache-2.0
#include "engine/row_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/block_copy/block_copy.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

constexpr int64_t kAlignment = 16;

// The buffers of one part, of one slot to another or to memory outside.
absl::Status CopyPart(runtime::Stream& stream, const kernels::KernelSet& kernels,
                      kernels::BlockCopyArgs args, const kernels::BlockPair& slots) {
  args.count = 1;
  args.pair[0] = slots;
  return kernels::BlockCopy(stream, kernels, args);
}

}  // namespace

RowStates::RowStates(std::span<const models::RowStateBuffer> buffers) {
  // Layers of one kind take turns with those of another, so that buffers of one size are as far
  // from each other as the next where they lie in one arena.
  std::map<size_t, std::vector<std::byte*>> by_size;
  for (const models::RowStateBuffer& buffer : buffers)
    by_size[buffer.slot_bytes].push_back(buffer.data);
  for (auto& [bytes, data] : by_size) {
    std::sort(data.begin(), data.end());
    for (size_t i = 0; i < data.size();) {
      Part part{.data = data[i], .slot_bytes = static_cast<int64_t>(bytes)};
      size_t end = i + 1;
      if (end < data.size()) part.layer_bytes = data[end] - data[i];
      while (end < data.size() && data[end] - data[end - 1] == part.layer_bytes) ++end;
      part.layers = static_cast<int32_t>(end - i);
      part.offset = bytes_;
      part.saved_layer_bytes = (part.slot_bytes + kAlignment - 1) / kAlignment * kAlignment;
      bytes_ += static_cast<size_t>(part.saved_layer_bytes) * (end - i);
      parts_.push_back(part);
      i = end;
    }
  }
}

absl::Status RowStates::Copy(runtime::Stream& stream, const kernels::KernelSet& kernels,
                             uint32_t from_slot, uint32_t to_slot) const {
  for (const Part& part : parts_) {
    REPRISE_RETURN_IF_ERROR(CopyPart(stream, kernels,
                                     {.from = part.data,
                                      .to = part.data,
                                      .from_layer_bytes = part.layer_bytes,
                                      .to_layer_bytes = part.layer_bytes,
                                      .block_bytes = part.slot_bytes,
                                      .layers = part.layers},
                                     {.from = from_slot, .to = to_slot}));
  }
  return absl::OkStatus();
}

absl::Status RowStates::Save(runtime::Stream& stream, const kernels::KernelSet& kernels,
                             uint32_t slot, std::byte* to) const {
  for (const Part& part : parts_) {
    REPRISE_RETURN_IF_ERROR(CopyPart(stream, kernels,
                                     {.from = part.data,
                                      .to = to + part.offset,
                                      .from_layer_bytes = part.layer_bytes,
                                      .to_layer_bytes = part.saved_layer_bytes,
                                      .block_bytes = part.slot_bytes,
                                      .layers = part.layers},
                                     {.from = slot, .to = 0}));
  }
  return absl::OkStatus();
}

absl::Status RowStates::Restore(runtime::Stream& stream, const kernels::KernelSet& kernels,
                                const std::byte* from, uint32_t slot) const {
  for (const Part& part : parts_) {
    REPRISE_RETURN_IF_ERROR(CopyPart(stream, kernels,
                                     {.from = from + part.offset,
                                      .to = part.data,
                                      .from_layer_bytes = part.saved_layer_bytes,
                                      .to_layer_bytes = part.layer_bytes,
                                      .block_bytes = part.slot_bytes,
                                      .layers = part.layers},
                                     {.from = 0, .to = slot}));
  }
  return absl::OkStatus();
}

}  // namespace reprise::engine
