// SPDX-License-Identifier: Apache-2.0
#include "service/kv/kv_call.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/kv/kv_wire.h"
#include "service/kv/recorded_contents.h"
#include "service/kv/shared_calls.h"
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

absl::Status Handle(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                    const v1::ReadBlocksRequest& request, v1::ReadBlocksResponse* response) {
  const engine::KvShape& shape = host.engine.info().kv;
  std::vector<engine::KvPart> parts = RangesFromWire(request, shape.num_layers);
  std::vector<std::byte> contents;
  REPRISE_RETURN_IF_ERROR(host.engine.ReadBlocks(session.info.id, parts, &contents));
  KvLayoutToWire(shape, kv.model, response->mutable_layout());
  PartsToWire(shape, parts, contents, response->mutable_parts());
  return absl::OkStatus();
}

// Whether a write or an import that failed may have left blocks in which nothing is written any
// more: it had begun then.
bool MayHaveChangedBlocks(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsAborted(status) || absl::IsInternal(status) ||
         absl::IsDeadlineExceeded(status);
}

absl::Status Handle(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                    v1::WriteBlocksRequest& request, v1::WriteBlocksResponse* /*response*/) {
  const engine::KvShape& shape = host.engine.info().kv;
  v1::KvLayout own;
  KvLayoutToWire(shape, kv.model, &own);
  REPRISE_RETURN_IF_ERROR(CheckKvLayout(request.layout(), own));
  REPRISE_ASSIGN_OR_RETURN(const KvParts parts, PartsFromWire(shape, request));
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  // When it is enqueued: steps that are submitted before it has ended come behind it.
  const uint64_t now_ns = NowNs();
  const absl::Status written =
      host.engine.WriteBlocks(session.info.id, parts.parts, parts.contents);
  if (recording != nullptr && written.ok()) recording->AddWrite(now_ns, &request);
  if (recording != nullptr && MayHaveChangedBlocks(written)) recording->Lose(RecordLoss::kKvCall);
  return written;
}

absl::Status CheckExchange(const KvService& kv) {
  if (kv.exchange != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "KV exchange: this server hands out and takes no blocks over shared memory; allowed: servers "
      "that were started with --kv-exchange");
}

template <typename Repeated>
std::span<const uint32_t> Ids(const Repeated& ids) {
  return {ids.data(), static_cast<size_t>(ids.size())};
}

absl::Status Handle(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                    const v1::ExportBlocksRequest& request, v1::ExportBlocksResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckExchange(kv));
  REPRISE_ASSIGN_OR_RETURN(
      std::vector<std::string> tickets,
      kv.exchange->Export(session.info.id, session.account.log_name(), Ids(request.blocks())));
  for (std::string& ticket : tickets) response->add_tickets(std::move(ticket));
  response->set_free_export_blocks(host.engine.pool().free_export_blocks);
  return absl::OkStatus();
}

absl::Status Handle(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                    const v1::ImportBlocksRequest& request, v1::ImportBlocksResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckExchange(kv));
  const std::vector<std::string_view> tickets(request.tickets().begin(), request.tickets().end());
  SessionRecording* recording = session.recording.get();
  const SessionRecording::PoolLock order(recording);
  const uint64_t now_ns = NowNs();
  const absl::StatusOr<std::vector<uint32_t>> tokens = kv.exchange->Import(
      session.info.id, session.account.log_name(), Ids(request.blocks()), tickets);
  if (recording != nullptr && tokens.ok())
    RecordContents(host, kv.model, session, now_ns, Ids(request.blocks()), *tokens);
  if (recording != nullptr && MayHaveChangedBlocks(tokens.status()))
    recording->Lose(RecordLoss::kKvCall);
  REPRISE_RETURN_IF_ERROR(tokens.status());
  response->mutable_num_tokens()->Assign(tokens->begin(), tokens->end());
  return absl::OkStatus();
}

absl::Status Handle(const ServiceHost& host, const KvService& kv, const ServedSession& session,
                    const v1::AdoptBlocksRequest& request, v1::AdoptBlocksResponse* response) {
  return AdoptBlocks(host, kv.model, session, request, response);
}

template <typename Request>
struct ResponseTo;
template <>
struct ResponseTo<v1::ReadBlocksRequest> {
  using Type = v1::ReadBlocksResponse;
};
template <>
struct ResponseTo<v1::WriteBlocksRequest> {
  using Type = v1::WriteBlocksResponse;
};
template <>
struct ResponseTo<v1::ExportBlocksRequest> {
  using Type = v1::ExportBlocksResponse;
};
template <>
struct ResponseTo<v1::ImportBlocksRequest> {
  using Type = v1::ImportBlocksResponse;
};
template <>
struct ResponseTo<v1::AdoptBlocksRequest> {
  using Type = v1::AdoptBlocksResponse;
};

// Whether the call does nothing else. Adopting moves none for itself, and needs neither a model
// that is known nor a server that takes new work.
template <typename Request>
constexpr bool kMovesContents = !std::is_same_v<Request, v1::AdoptBlocksRequest>;

}  // namespace

template <typename Request>
grpc::ServerUnaryReactor* KvCall<Request>::Start(const ServiceHost& host, KvService& kv,
                                                 const Account& account,
                                                 const grpc::ByteBuffer& request,
                                                 grpc::ByteBuffer* response) {
  auto* call = new KvCall(host, kv, response);
  bool queued = false;
  const absl::Status enqueued =
      CatchOutOfMemory([&] { return call->Enqueue(account, request, &queued); });
  if (queued) return call;
  if (!enqueued.ok()) {
    call->Finish(ToGrpcStatus(enqueued));
    return call;
  }
  call->Run();
  call->Answer();
  return call;
}

template <typename Request>
absl::Status KvCall<Request>::Enqueue(const Account& account, const grpc::ByteBuffer& bytes,
                                      bool* queued) {
  WireHead head;
  REPRISE_RETURN_IF_ERROR(
      ScanWire(bytes, *Request::descriptor(), engine::kMaxKvBlocksPerCall, &head));
  if constexpr (kMovesContents<Request>) REPRISE_RETURN_IF_ERROR(host_.admission.CheckAdmitting());
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<ServedSession> session,
                           host_.sessions.Find(head.session, account));
  session_ = CallInSession(std::move(session));
  if constexpr (kMovesContents<Request>) REPRISE_RETURN_IF_ERROR(CheckModelKnown(kv_));
  REPRISE_ASSIGN_OR_RETURN(charge_, host_.memory.ChargeMessage(bytes.Length(), head.num_entries));
  REPRISE_RETURN_IF_ERROR(ParseWire(bytes, &request_));
  return Push(queued);
}

template <typename Request>
absl::Status KvCall<Request>::Push(bool* queued) {
  SessionRecording* recording = session_->recording.get();
  if (!kMovesContents<Request> && (recording == nullptr || !recording->goes_on()))
    return absl::OkStatus();
  // Once it is queued it may be over.
  const absl::Status pushed = kv_.queue.Push(session_->info.id, this);
  *queued = pushed.ok();
  if constexpr (!kMovesContents<Request>) {
    // No recording is worth a refusal.
    if (!pushed.ok()) recording->Lose(RecordLoss::kOverflow);
    return absl::OkStatus();
  }
  return pushed;
}

template <typename Request>
absl::Status KvCall<Request>::Do() {
  if (cancelled_.load(std::memory_order_relaxed))
    return absl::CancelledError("the client ended the call before its turn; nothing has changed");
  typename ResponseTo<Request>::Type response;
  REPRISE_RETURN_IF_ERROR(Handle(host_, kv_, *session_, request_, &response));
  *response_bytes_ = SerializeWire(response);
  request_.Clear();
  charge_ = host_.memory.ChargeAnswer(response_bytes_->Length());
  return absl::OkStatus();
}

template <typename Request>
void KvCall<Request>::Run() {
  status_ = CatchOutOfMemory([this] { return Do(); });
  if (!status_.ok()) status_ = host_.sessions.WhyEnded(*session_, status_);
}

template <typename Request>
void KvCall<Request>::Answer() {
  const std::lock_guard lock(mutex_);
  this->Finish(ToGrpcStatus(status_));
}

template class KvCall<v1::ReadBlocksRequest>;
template class KvCall<v1::WriteBlocksRequest>;
template class KvCall<v1::ExportBlocksRequest>;
template class KvCall<v1::ImportBlocksRequest>;
template class KvCall<v1::AdoptBlocksRequest>;

absl::Status FreeExported(const ServiceHost& host, const KvService& kv,
                          const ServedSession& session, const v1::FreeExportedRequest& request,
                          v1::FreeExportedResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckExchange(kv));
  const std::vector<std::string_view> tickets(request.tickets().begin(), request.tickets().end());
  REPRISE_RETURN_IF_ERROR(kv.exchange->FreeExported(session.info.id, tickets));
  response->set_free_export_blocks(host.engine.pool().free_export_blocks);
  return absl::OkStatus();
}

}  // namespace reprise::service
