// SPDX-License-Identifier: Apache-2.0
#include "service/kv/shared_calls.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/kv/recorded_contents.h"

namespace reprise::service {
namespace {

// Blocks that the session uses with others. 0: none, or the session has ended.
uint32_t NumShared(const ServiceHost& host, const ServedSession& session) {
  const absl::StatusOr<engine::SessionUse> use = host.engine.session_use(session.info.id);
  return use.ok() ? use->num_shared : 0;
}

}  // namespace

absl::Status ShareBlocks(const ServiceHost& host, const ServedSession& session,
                         const v1::ShareBlocksRequest& request,
                         v1::ShareBlocksResponse* /*response*/) {
  const std::span<const uint32_t> blocks(request.blocks().data(),
                                         static_cast<size_t>(request.blocks_size()));
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint64_t now_ns = NowNs();
  REPRISE_RETURN_IF_ERROR(host.engine.ShareBlocks(session.info.id, request.name(), blocks));
  if (recording != nullptr) recording->AddShare(now_ns, request.name(), blocks);
  return absl::OkStatus();
}

absl::Status AdoptBlocks(const ServiceHost& host, const std::string& model,
                         const ServedSession& session, const v1::AdoptBlocksRequest& request,
                         v1::AdoptBlocksResponse* response) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint32_t before = recording == nullptr ? 0 : NumShared(host, session);
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> blocks,
                           host.engine.AdoptBlocks(session.info.id, request.name()));
  // Asked for again, it changes nothing.
  if (recording != nullptr && NumShared(host, session) != before)
    RecordAdoption(host, model, session, request.name(), blocks);
  response->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return absl::OkStatus();
}

absl::Status ReleaseBlocks(const ServiceHost& host, const ServedSession& session,
                           const v1::ReleaseBlocksRequest& request,
                           v1::ReleaseBlocksResponse* response) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint64_t now_ns = NowNs();
  REPRISE_RETURN_IF_ERROR(host.engine.ReleaseBlocks(session.info.id, request.name()));
  if (recording != nullptr) recording->AddRelease(now_ns, request.name());
  response->set_free_blocks(host.engine.pool().free_blocks);
  return absl::OkStatus();
}

}  // namespace reprise::service
