// SPDX-License-Identifier: Apache-2.0
#include "service/kv/shared_calls.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/status_macros.h"

namespace reprise::service {

// A session that was recorded alone cannot be repeated with what others have written.
absl::Status ShareBlocks(const ServiceHost& host, const ServedSession& session,
                         const v1::ShareBlocksRequest& request,
                         v1::ShareBlocksResponse* /*response*/) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  REPRISE_RETURN_IF_ERROR(host.engine.ShareBlocks(
      session.info.id, request.name(),
      {request.blocks().data(), static_cast<size_t>(request.blocks_size())}));
  if (recording != nullptr) recording->Lose(RecordLoss::kKvCall);
  return absl::OkStatus();
}

absl::Status AdoptBlocks(const ServiceHost& host, const ServedSession& session,
                         const v1::AdoptBlocksRequest& request, v1::AdoptBlocksResponse* response) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> blocks,
                           host.engine.AdoptBlocks(session.info.id, request.name()));
  if (recording != nullptr) recording->Lose(RecordLoss::kKvCall);
  response->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return absl::OkStatus();
}

absl::Status ReleaseBlocks(const ServiceHost& host, const ServedSession& session,
                           const v1::ReleaseBlocksRequest& request,
                           v1::ReleaseBlocksResponse* response) {
  REPRISE_RETURN_IF_ERROR(host.engine.ReleaseBlocks(session.info.id, request.name()));
  response->set_free_blocks(host.engine.pool().free_blocks);
  return absl::OkStatus();
}

}  // namespace reprise::service
