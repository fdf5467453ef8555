// SPDX-License-Identifier: Apache-2.0
#include "service/kv/swap_calls.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/status_macros.h"
#include "service/clock.h"

namespace reprise::service {
namespace {

std::span<const uint32_t> View(const google::protobuf::RepeatedField<uint32_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

}  // namespace

absl::Status SwapOut(const ServiceHost& host, const ServedSession& session,
                     const v1::SwapOutRequest& request, v1::SwapOutResponse* response) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint64_t now_ns = NowNs();
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> swapped,
                           host.engine.SwapOut(session.info.id, View(request.blocks())));
  if (recording != nullptr) recording->AddSwapOut(now_ns, View(request.blocks()), swapped);
  response->mutable_swapped()->Assign(swapped.begin(), swapped.end());
  const engine::PoolInfo pool = host.engine.pool();
  response->set_free_blocks(pool.free_blocks);
  response->set_free_swap_blocks(pool.free_swap_blocks);
  return absl::OkStatus();
}

absl::Status SwapIn(const ServiceHost& host, const ServedSession& session,
                    const v1::SwapInRequest& request, v1::SwapInResponse* response) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint64_t now_ns = NowNs();
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> blocks,
                           host.engine.SwapIn(session.info.id, View(request.swapped())));
  if (recording != nullptr) recording->AddSwapIn(now_ns, View(request.swapped()), blocks);
  response->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  const engine::PoolInfo pool = host.engine.pool();
  response->set_free_blocks(pool.free_blocks);
  response->set_free_swap_blocks(pool.free_swap_blocks);
  return absl::OkStatus();
}

absl::Status SwapOutState(const ServiceHost& host, const ServedSession& session,
                          const v1::SwapOutStateRequest& request,
                          v1::SwapOutStateResponse* response) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint64_t now_ns = NowNs();
  REPRISE_ASSIGN_OR_RETURN(const engine::SwappedState state,
                           host.engine.SwapOutState(session.info.id, request.row()));
  if (recording != nullptr) recording->AddSwapOutState(now_ns, request.row(), state);
  response->set_swapped_state(state.place);
  response->set_context_length(state.context_length);
  response->set_free_swap_states(host.engine.pool().free_swap_states);
  return absl::OkStatus();
}

absl::Status FreeSwapped(const ServiceHost& host, const ServedSession& session,
                         const v1::FreeSwappedRequest& request, v1::FreeSwappedResponse* response) {
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint64_t now_ns = NowNs();
  REPRISE_RETURN_IF_ERROR(host.engine.FreeSwapped(session.info.id, View(request.swapped()),
                                                  View(request.swapped_states())));
  if (recording != nullptr) {
    recording->AddFreeSwapped(now_ns, View(request.swapped()), View(request.swapped_states()));
  }
  const engine::PoolInfo pool = host.engine.pool();
  response->set_free_swap_blocks(pool.free_swap_blocks);
  response->set_free_swap_states(pool.free_swap_states);
  return absl::OkStatus();
}

}  // namespace reprise::service
