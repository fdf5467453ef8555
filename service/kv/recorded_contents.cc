// SPDX-License-Identifier: Apache-2.0
#include "service/kv/recorded_contents.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/kv/kv_wire.h"
#include "service/out_of_memory.h"

namespace reprise::service {
namespace {

// Blocks with all their layers, by as much as one read takes at a time, in the order in which they
// can be written.
class Reads {
 public:
  Reads(const engine::EngineInfo& info, std::span<const uint32_t> blocks)
      : info_(info), blocks_(blocks) {}

  // Empty once all have been taken.
  std::vector<engine::KvPart> Next() {
    const uint64_t layer_bytes = info_.kv.WholeBytesOf({.num_layers = 1});
    uint64_t room = info_.max_kv_transfer_bytes;
    std::vector<engine::KvPart> parts;
    while (block_ < blocks_.size() && parts.size() < engine::kMaxKvBlocksPerCall &&
           room >= layer_bytes) {
      const auto layers = static_cast<uint32_t>(
          std::min<uint64_t>(room / layer_bytes, info_.kv.num_layers - layer_));
      parts.push_back({.block = blocks_[block_], .first_layer = layer_, .num_layers = layers});
      room -= layers * layer_bytes;
      layer_ += layers;
      if (layer_ < info_.kv.num_layers) continue;
      layer_ = 0;
      ++block_;
    }
    return parts;
  }

 private:
  const engine::EngineInfo& info_;
  const std::span<const uint32_t> blocks_;
  size_t block_ = 0;    // of blocks_, the next one
  uint32_t layer_ = 0;  // of it
};

// Nobody but this session writes in its blocks, and its client does not know of these yet. A client
// that guessed and wrote leaves tokens there of which it is not certain when they came.
absl::Status CheckTokens(const engine::KvPart& part, std::span<const uint32_t> blocks,
                         std::span<const uint32_t> num_tokens) {
  const auto at = std::ranges::find(blocks, part.block) - blocks.begin();
  const uint32_t expected = num_tokens[static_cast<size_t>(at)];
  if (part.num_tokens == expected) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("block ", part.block, ": got ", part.num_tokens,
                                         " tokens, allowed: ", expected));
}

absl::Status ReadContents(const ServiceHost& host, const std::string& model,
                          const ServedSession& session, uint64_t at_ns,
                          std::span<const uint32_t> blocks, std::span<const uint32_t> num_tokens) {
  SessionRecording* recording = session.recording.get();
  const engine::EngineInfo& info = host.engine.info();
  uint64_t bytes = 0;
  for (const uint32_t tokens : num_tokens)
    bytes += info.kv.BytesOf({.num_layers = info.kv.num_layers, .num_tokens = tokens});
  v1::WriteBlocksRequest write;
  KvLayoutToWire(info.kv, model, write.mutable_layout());
  Reads reads(info, blocks);
  std::vector<std::byte> contents;
  for (auto parts = reads.Next(); !parts.empty(); parts = reads.Next()) {
    // What would not be kept is not read.
    if (!recording->HasRoomFor(bytes)) return absl::OkStatus();
    contents.clear();
    REPRISE_RETURN_IF_ERROR(host.engine.ReadBlocks(session.info.id, parts, &contents));
    for (const engine::KvPart& part : parts)
      REPRISE_RETURN_IF_ERROR(CheckTokens(part, blocks, num_tokens));
    write.clear_parts();
    PartsToWire(info.kv, parts, contents, write.mutable_parts());
    recording->AddWrite(at_ns, &write);
    bytes -= std::min<uint64_t>(bytes, contents.size());
  }
  return absl::OkStatus();
}

}  // namespace

void RecordContents(const ServiceHost& host, const std::string& model, const ServedSession& session,
                    uint64_t at_ns, std::span<const uint32_t> blocks,
                    std::span<const uint32_t> num_tokens) {
  bool had_memory = false;
  const absl::Status read = CatchOutOfMemory([&] {
    const absl::Status status = ReadContents(host, model, session, at_ns, blocks, num_tokens);
    had_memory = true;
    return status;
  });
  if (read.ok()) return;
  session.recording.get()->Lose(had_memory ? RecordLoss::kKvCall : RecordLoss::kOutOfMemory);
}

void RecordAdoption(const ServiceHost& host, const std::string& model, const ServedSession& session,
                    std::string_view name, std::span<const uint32_t> blocks) {
  SessionRecording* recording = session.recording.get();
  const uint64_t now_ns = NowNs();
  recording->AddAdopted(now_ns, blocks);
  const absl::Status had_memory = CatchOutOfMemory([&] {
    // Shared blocks are full.
    const std::vector<uint32_t> num_tokens(blocks.size(), host.engine.info().kv.block_size);
    RecordContents(host, model, session, now_ns, blocks, num_tokens);
    return absl::OkStatus();
  });
  if (!had_memory.ok()) recording->Lose(RecordLoss::kOutOfMemory);
  recording->AddShare(now_ns, name, blocks);
}

}  // namespace reprise::service
