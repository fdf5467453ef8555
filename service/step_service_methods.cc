// SPDX-License-Identifier: Apache-2.0
// What the unary calls of StepService do, once the caller may, the engine is there and the request
// has been parsed (StepService::Unary).
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/kv/kv_wire.h"
#include "service/kv/shared_calls.h"
#include "service/kv/swap_calls.h"
#include "service/out_of_memory.h"
#include "service/profile_calls.h"
#include "service/session_admin.h"
#include "service/step_service.h"
#include "service/step_service_attached.h"
#include "service/wire/describe_to_wire.h"

namespace reprise::service {
namespace {

// Graphs of either kind that a client may ask for.
constexpr int kMaxBuckets = 256;

absl::StatusOr<std::vector<int64_t>> BucketsOf(
    const char* kind, const google::protobuf::RepeatedField<uint32_t>& wire) {
  if (wire.size() > kMaxBuckets)
    return absl::InvalidArgumentError(
        absl::StrCat(kind, ": got ", wire.size(), " buckets, allowed: at most ", kMaxBuckets));
  return std::vector<int64_t>(wire.begin(), wire.end());
}

}  // namespace

absl::Status StepService::Describe(const Account& caller, const v1::DescribeRequest& /*request*/,
                                   v1::DescribeResponse* response) {
  const engine::DecodeEngine& engine = attached()->host.engine;
  DescribeToWire(engine.info(), engine.pool(), engine.captured_graphs(), engine.attention_tree(),
                 max_message_bytes_, response);
  KvLayoutToWire(engine.info().kv, model_, response->mutable_kv_layout());
  uint32_t blocks = engine.pool().num_blocks - 1;  // but the scratch block
  for (const uint32_t limit : {max_session_blocks_, caller.max_blocks.load()})
    if (limit != 0) blocks = std::min(blocks, limit);
  response->mutable_limits()->set_max_session_blocks(blocks);
  return absl::OkStatus();
}

absl::Status StepService::Allocate(ServedSession& session, const v1::AllocateRequest& request,
                                   v1::AllocateResponse* response) {
  engine::DecodeEngine& engine = attached()->host.engine;
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> blocks,
                           engine.AllocateBlocks(session.info.id, request.count()));
  const absl::Status answered = CatchOutOfMemory([&] {
    response->mutable_blocks()->Assign(blocks.begin(), blocks.end());
    response->set_free_blocks(engine.pool().free_blocks);
    return absl::OkStatus();
  });
  if (!answered.ok()) {
    // Their ids never reach the client.
    engine.FreeBlocks(session.info.id, blocks).IgnoreError();
    return answered;
  }
  if (recording != nullptr) recording->AddAllocate(request, *response);
  return absl::OkStatus();
}

absl::Status StepService::Free(ServedSession& session, const v1::FreeRequest& request,
                               v1::FreeResponse* response) {
  engine::DecodeEngine& engine = attached()->host.engine;
  const std::span<const uint32_t> blocks(request.blocks().data(),
                                         static_cast<size_t>(request.blocks_size()));
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  REPRISE_RETURN_IF_ERROR(engine.FreeBlocks(session.info.id, blocks));
  if (recording != nullptr) recording->AddFree(request);
  response->set_free_blocks(engine.pool().free_blocks);
  return absl::OkStatus();
}

absl::Status StepService::SwapOut(ServedSession& session, const v1::SwapOutRequest& request,
                                  v1::SwapOutResponse* response) {
  return service::SwapOut(attached()->host, session, request, response);
}

absl::Status StepService::SwapOutState(ServedSession& session,
                                       const v1::SwapOutStateRequest& request,
                                       v1::SwapOutStateResponse* response) {
  return service::SwapOutState(attached()->host, session, request, response);
}

absl::Status StepService::SwapIn(ServedSession& session, const v1::SwapInRequest& request,
                                 v1::SwapInResponse* response) {
  return service::SwapIn(attached()->host, session, request, response);
}

absl::Status StepService::FreeSwapped(ServedSession& session, const v1::FreeSwappedRequest& request,
                                      v1::FreeSwappedResponse* response) {
  return service::FreeSwapped(attached()->host, session, request, response);
}

absl::Status StepService::ShareBlocks(ServedSession& session, const v1::ShareBlocksRequest& request,
                                      v1::ShareBlocksResponse* response) {
  return service::ShareBlocks(attached()->host, session, request, response);
}

absl::Status StepService::ReleaseBlocks(ServedSession& session,
                                        const v1::ReleaseBlocksRequest& request,
                                        v1::ReleaseBlocksResponse* response) {
  return service::ReleaseBlocks(attached()->host, session, request, response);
}

absl::Status StepService::FreeExported(ServedSession& session,
                                       const v1::FreeExportedRequest& request,
                                       v1::FreeExportedResponse* response) {
  return service::FreeExported(attached()->host, attached()->kv, session, request, response);
}

absl::Status StepService::SetAttentionTree(const v1::SetAttentionTreeRequest& request,
                                           v1::SetAttentionTreeResponse* response) {
  // Of an identity the role has been asked for.
  if (!callers_.has_identities() && !allow_attention_trees_)
    return absl::PermissionDeniedError(
        "attention tree: this server takes none from clients; allowed where it is started with "
        "--allow-attention-trees");
  engine::DecodeEngine& engine = attached()->host.engine;
  REPRISE_ASSIGN_OR_RETURN(const uint64_t version, engine.SetAttentionTree(request.text()));
  response->set_version(version);
  return absl::OkStatus();
}

absl::Status StepService::CheckAdministration(const char* what) const {
  if (callers_.has_identities() || allow_administration_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(what,
                   ": this server has no administrators; allowed where it has identities with that "
                   "role, or is started with --allow-administration"));
}

absl::Status StepService::SetBuckets(const v1::SetBucketsRequest& request,
                                     v1::SetBucketsResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("buckets"));
  engine::BucketSets buckets;
  REPRISE_ASSIGN_OR_RETURN(buckets.decode, BucketsOf("decode", request.decode()));
  REPRISE_ASSIGN_OR_RETURN(buckets.mixed, BucketsOf("mixed", request.mixed()));
  // A second call would wait on one of gRPC's threads.
  const std::unique_lock lock(buckets_mutex_, std::try_to_lock);
  if (!lock.owns_lock())
    return absl::AbortedError("buckets: another call is changing them; allowed: when it has ended");
  const auto named = [this](const engine::GraphsInfo& graphs) {
    telemetry_.AddGraphs(NamesOf(graphs));
  };
  REPRISE_ASSIGN_OR_RETURN(const engine::GraphsInfo graphs,
                           attached()->host.engine.SetBuckets(buckets, named));
  BucketsToWire(graphs, response->mutable_buckets());
  response->set_version(graphs.version);
  response->set_capture_ns(graphs.capture_ns);
  return absl::OkStatus();
}

absl::Status StepService::StartProfile(ServedSession& session,
                                       const v1::StartProfileRequest& request,
                                       v1::StartProfileResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("profile"));
  return service::StartProfile(attached()->host, session, request, response);
}

absl::Status StepService::ReadTelemetry(const v1::ReadTelemetryRequest& /*request*/,
                                        v1::ReadTelemetryResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("telemetry"));
  service::ReadTelemetry(attached()->host, response);
  return absl::OkStatus();
}

absl::Status StepService::ListSessions(const v1::ListSessionsRequest& request,
                                       v1::ListSessionsResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("sessions"));
  return service::ListSessions(attached()->host, request, response);
}

absl::Status StepService::EvictSession(const v1::EvictSessionRequest& request,
                                       v1::EvictSessionResponse* /*response*/) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("sessions"));
  return service::EvictSession(attached()->host, request);
}

absl::Status StepService::ReloadFiles(const v1::ReloadFilesRequest& /*request*/,
                                      v1::ReloadFilesResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("files"));
  REPRISE_ASSIGN_OR_RETURN(const FilesChange files, reload_());
  response->set_identities_added(files.identities_added);
  response->set_identities_changed(files.identities_changed);
  response->set_identities_removed(files.identities_removed);
  response->set_sessions_ended(files.sessions_ended);
  response->set_tls(files.tls);
  return absl::OkStatus();
}

}  // namespace reprise::service
