// SPDX-License-Identifier: Apache-2.0
#include "service/kv/kv_call.h"

#include <cstddef>
#include <vector>

#include "runtime/status_macros.h"
#include "service/kv/kv_wire.h"
#include "service/out_of_memory.h"
#include "service/status.h"
#include "service/wire/message.h"
#include "service/wire/scan.h"

namespace reprise::service {
namespace {

absl::Status CheckModelKnown(const KvService& kv) {
  if (!kv.model.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "KV contents: this server was not told which model it serves, so that contents of blocks "
      "cannot be told from another model's; allowed: servers whose Describe has kv_layout.model");
}

absl::Status Read(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                  const v1::ReadBlocksRequest& request, v1::ReadBlocksResponse* response) {
  const engine::KvShape& shape = host.engine.info().kv;
  std::vector<engine::KvPart> parts = RangesFromWire(request, shape.num_layers);
  std::vector<std::byte> contents;
  REPRISE_RETURN_IF_ERROR(host.engine.ReadBlocks(session.info.id, parts, &contents));
  KvLayoutToWire(shape, kv.model, response->mutable_layout());
  PartsToWire(shape, parts, contents, response);
  return absl::OkStatus();
}

absl::Status Write(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                   const v1::WriteBlocksRequest& request, v1::WriteBlocksResponse* /*response*/) {
  const engine::KvShape& shape = host.engine.info().kv;
  v1::KvLayout own;
  KvLayoutToWire(shape, kv.model, &own);
  REPRISE_RETURN_IF_ERROR(CheckKvLayout(request.layout(), own));
  REPRISE_ASSIGN_OR_RETURN(const KvParts parts, PartsFromWire(shape, request));
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  REPRISE_RETURN_IF_ERROR(host.engine.WriteBlocks(session.info.id, parts.parts, parts.contents));
  if (recording != nullptr) recording->Lose(RecordLoss::kKvCall);
  return absl::OkStatus();
}

absl::Status Handle(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                    const v1::ReadBlocksRequest& request, grpc::ByteBuffer* bytes) {
  v1::ReadBlocksResponse response;
  REPRISE_RETURN_IF_ERROR(Read(host, kv, session, request, &response));
  *bytes = SerializeWire(response);
  return absl::OkStatus();
}

absl::Status Handle(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                    const v1::WriteBlocksRequest& request, grpc::ByteBuffer* bytes) {
  v1::WriteBlocksResponse response;
  REPRISE_RETURN_IF_ERROR(Write(host, kv, session, request, &response));
  *bytes = SerializeWire(response);
  return absl::OkStatus();
}

}  // namespace

template <typename Request>
grpc::ServerUnaryReactor* KvCall<Request>::Start(const ServiceHost& host, KvService& kv,
                                                 const Account& account,
                                                 const grpc::ByteBuffer& request,
                                                 grpc::ByteBuffer* response) {
  auto* call = new KvCall(host, kv, response);
  const absl::Status enqueued = CatchOutOfMemory([&] { return call->Enqueue(account, request); });
  if (!enqueued.ok()) call->Finish(ToGrpcStatus(enqueued));
  return call;
}

template <typename Request>
absl::Status KvCall<Request>::Enqueue(const Account& account, const grpc::ByteBuffer& bytes) {
  WireHead head;
  REPRISE_RETURN_IF_ERROR(
      ScanWire(bytes, *Request::descriptor(), engine::kMaxKvBlocksPerCall, &head));
  REPRISE_RETURN_IF_ERROR(host_.admission.CheckAdmitting());
  REPRISE_ASSIGN_OR_RETURN(session_, host_.sessions.Find(head.session, account));
  REPRISE_RETURN_IF_ERROR(CheckModelKnown(kv_));
  REPRISE_ASSIGN_OR_RETURN(charge_, host_.memory.ChargeMessage(bytes.Length(), head.num_entries));
  REPRISE_RETURN_IF_ERROR(ParseWire(bytes, &request_));
  return kv_.queue.Push(session_->info.id, this);
}

template <typename Request>
absl::Status KvCall<Request>::Do() {
  if (cancelled_.load(std::memory_order_relaxed))
    return absl::CancelledError("the client ended the call before its turn; nothing has changed");
  REPRISE_RETURN_IF_ERROR(Handle(host_, kv_, *session_, request_, response_bytes_));
  request_.Clear();
  charge_ = host_.memory.ChargeAnswer(response_bytes_->Length());
  return absl::OkStatus();
}

template <typename Request>
void KvCall<Request>::Run() {
  const std::lock_guard lock(mutex_);
  this->Finish(ToGrpcStatus(CatchOutOfMemory([this] { return Do(); })));
}

template class KvCall<v1::ReadBlocksRequest>;
template class KvCall<v1::WriteBlocksRequest>;

}  // namespace reprise::service
