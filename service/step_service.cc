// SPDX-License-Identifier: Apache-2.0
#include "service/step_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/end_session.h"
#include "service/kv/kv_call.h"
#include "service/out_of_memory.h"
#include "service/session_admin.h"
#include "service/status.h"
#include "service/step_service_attached.h"
#include "service/step_stream.h"
#include "service/unary_step.h"
#include "service/wire/message.h"
#include "service/wire/scan.h"

namespace reprise::service {
namespace {

absl::Status Loading() {
  return absl::UnavailableError("loading: the model is not ready yet; watch the health service");
}

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// How often what is over is looked for.
constexpr std::chrono::milliseconds kLookPeriod(250);
// For a client whose stream has lost its session to be told why.
constexpr uint64_t kLostStreamNs = 1'000'000'000;

}  // namespace

StepService::StepService(const ServiceLimits& limits, Callers& callers,
                         std::function<void(const std::string&)> report)
    : max_message_bytes_(limits.max_message_bytes),
      max_resume_grace_ms_(limits.max_resume_grace_ms),
      max_session_blocks_(limits.session.max_blocks),
      allow_attention_trees_(limits.allow_attention_trees),
      allow_administration_(limits.allow_administration),
      joint_(limits.joint),
      model_(limits.model),
      callers_(callers),
      report_(std::move(report)),
      memory_(limits.max_waiting_bytes, limits.max_message_bytes),
      sessions_(limits.max_sessions, limits.session) {
  const std::chrono::milliseconds timeout(limits.idle_timeout_ms);
  watcher_ = std::thread([this, timeout] { Watch(timeout); });
}

// gRPC has called every stream's OnDone by now; its own locks say so, which no tool can see that
// watches ours.
StepService::~StepService() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopping_changed_.notify_all();
  watcher_.join();
  admission_.Settle();
}

void StepService::Watch(std::chrono::milliseconds timeout) {
  const auto timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  const std::chrono::milliseconds period =
      timeout.count() == 0 ? kLookPeriod : std::min(kLookPeriod, timeout / 4);
  std::unique_lock lock(mutex_);
  while (!stopping_changed_.wait_for(lock, period, [this] { return stopping_; })) {
    lock.unlock();
    const absl::Status looked = CatchOutOfMemory([&] {
      LookAround(timeout_ns);
      return absl::OkStatus();
    });
    // What is left undone is there to be found at the next look.
    if (!looked.ok()) telemetry_.NoteLookOutOfMemory();
    if (looked.ok() && telemetry_.looks_out_of_memory() != 0) TellOutOfMemory();
    lock.lock();
  }
}

void StepService::LookAround(uint64_t timeout_ns) {
  const uint64_t now_ns = NowNs();
  if (timeout_ns != 0 && now_ns > timeout_ns) admission_.EndIdleStreams(now_ns - timeout_ns);
  admission_.CutLostStreams(now_ns - kLostStreamNs);
  EndExpiredSessions();
}

// Once, when there is memory again.
void StepService::TellOutOfMemory() {
  if (report_ == nullptr || told_out_of_memory_) return;
  const absl::Status told = CatchOutOfMemory([this] {
    report_(
        "the server was out of memory when it looked for sessions to end; it does so now, and "
        "further times are counted alone (reprise_session_watch_out_of_memory_total)");
    return absl::OkStatus();
  });
  told_out_of_memory_ = told.ok();
}

void StepService::EndExpiredSessions() {
  const Attached* serving = attached();
  if (serving == nullptr) return;
  if (expired_.empty()) expired_ = sessions_.TakeExpired(NowNs());
  // One by one: where memory runs out in between, the next look goes on with the rest.
  for (; !expired_.empty(); expired_.pop_back())
    EndSession(serving->host, *expired_.back(), SessionEnd::kExpired);
}

void StepService::Attach(engine::DecodeEngine& engine, KvExchange* exchange,
                         std::function<void()> on_fault) {
  const std::lock_guard lock(identities_mutex_);
  REPRISE_CHECK(owned_ == nullptr);
  telemetry_.SetGraphs(NamesOf(engine.captured_graphs()));
  owned_ = std::make_unique<Attached>(engine, exchange, *this, std::move(on_fault));
  attached_.store(owned_.get(), std::memory_order_release);
}

absl::StatusOr<FilesChange> StepService::ReplaceIdentities(
    const std::vector<Identity>& identities) {
  const std::lock_guard lock(identities_mutex_);
  Attached* serving = attached();
  REPRISE_ASSIGN_OR_RETURN(
      const Callers::Change change,
      callers_.Replace(identities, [serving](Account& account, const Identity* identity) {
        if (serving != nullptr) serving->SetUp(account, identity);
      }));
  FilesChange files = {.identities_added = change.added,
                       .identities_changed = change.changed,
                       .identities_removed = change.removed};
  if (serving == nullptr) return files;
  std::vector<const Account*> gone;
  callers_.ForEachAccount([&gone](const Account& account, const Identity* /*identity*/) {
    if (!account.may_have_sessions) gone.push_back(&account);
  });
  for (const Account* account : gone)
    files.sessions_ended += EvictSessionsOf(serving->host, *account);
  return files;
}

const ServiceHost* StepService::host() const {
  const Attached* serving = attached();
  return serving == nullptr ? nullptr : &serving->host;
}

bool StepService::IsServing() const {
  const Attached* serving = attached();
  return serving != nullptr && admission_.CheckAdmitting().ok() &&
         serving->host.engine.health().ok();
}

// Nobody can come back to a session that is detached.
void StepService::Drain() {
  const std::vector<std::shared_ptr<ServedSession>> detached = sessions_.Drain();
  admission_.Drain();
  for (const std::shared_ptr<ServedSession>& session : detached)
    EndSession(attached()->host, *session, SessionEnd::kDrained);
}

bool StepService::WaitIdle(std::chrono::steady_clock::time_point deadline) {
  return admission_.WaitIdle(deadline);
}

// Strangers are not told how far loading has come.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepService::StepStream(
    grpc::CallbackServerContext* context) {
  Account* account = nullptr;
  const absl::Status allowed = CatchOutOfMemory([&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(account, callers_.Authorize(*context, Role::kStep, "StepStream"));
    return absl::OkStatus();
  });
  if (!allowed.ok()) {
    telemetry_.NoteDenied(allowed);
    return service::StepStream::Refuse(allowed);
  }
  Attached* serving = attached();
  if (serving == nullptr) return service::StepStream::Refuse(Loading());
  return service::StepStream::Start(serving->host, *account, *context);
}

grpc::ServerUnaryReactor* StepService::Step(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  Account* account = nullptr;
  const absl::Status allowed = CatchOutOfMemory([&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(account, callers_.Authorize(*context, Role::kStep, "Step"));
    return absl::OkStatus();
  });
  if (!allowed.ok()) {
    telemetry_.NoteDenied(allowed);
    return Finish(context, allowed);
  }
  Attached* serving = attached();
  if (serving == nullptr) return Finish(context, Loading());
  return UnaryStep::Start(serving->host, *account, *context, *request, response);
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* StepService::Unary(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response,
                                             const UnaryMethod<Request, Response>& method) {
  const absl::Status status = CatchOutOfMemory([&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(const Account* account,
                             callers_.Authorize(*context, method.role, method.name));
    const Attached* serving = attached();
    if (serving == nullptr) return Loading();
    WireHead head;
    Request wire_request;
    Response wire_response;
    REPRISE_RETURN_IF_ERROR(
        ScanWire(*request, *Request::descriptor(), serving->host.max_entries(), &head));
    std::shared_ptr<ServedSession> session;
    if constexpr (kNamesSession<Request>) {
      REPRISE_ASSIGN_OR_RETURN(session, sessions_.Find(head.session, *account));
    }
    const CallInSession call(session);
    REPRISE_ASSIGN_OR_RETURN(const MemoryBudget::Charge charge,
                             memory_.ChargeMessage(request->Length(), head.num_entries));
    REPRISE_RETURN_IF_ERROR(ParseWire(*request, &wire_request));
    if constexpr (kNamesSession<Request>) {
      const absl::Status handled = (this->*method.handle)(*session, wire_request, &wire_response);
      if (!handled.ok()) return sessions_.WhyEnded(*session, handled);
    } else if constexpr (kTellsCaller<Request>) {
      REPRISE_RETURN_IF_ERROR((this->*method.handle)(*account, wire_request, &wire_response));
    } else {
      REPRISE_RETURN_IF_ERROR((this->*method.handle)(wire_request, &wire_response));
    }
    *response = SerializeWire(wire_response);
    return absl::OkStatus();
  });
  telemetry_.NoteDenied(status);
  return Finish(context, status);
}

grpc::ServerUnaryReactor* StepService::Describe(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Unary<v1::DescribeRequest, v1::DescribeResponse>(
      context, request, response, {"Describe", Role::kObserve, &StepService::Describe});
}

grpc::ServerUnaryReactor* StepService::Allocate(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Unary<v1::AllocateRequest, v1::AllocateResponse>(
      context, request, response, {"Allocate", Role::kStep, &StepService::Allocate});
}

grpc::ServerUnaryReactor* StepService::Free(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return Unary<v1::FreeRequest, v1::FreeResponse>(context, request, response,
                                                  {"Free", Role::kStep, &StepService::Free});
}

template <typename Call>
grpc::ServerUnaryReactor* StepService::StartKvCall(grpc::CallbackServerContext* context,
                                                   const char* name,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  Account* account = nullptr;
  const absl::Status allowed = CatchOutOfMemory([&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(account, callers_.Authorize(*context, Role::kStep, name));
    return absl::OkStatus();
  });
  if (!allowed.ok()) {
    telemetry_.NoteDenied(allowed);
    return Finish(context, allowed);
  }
  Attached* serving = attached();
  if (serving == nullptr) return Finish(context, Loading());
  return Call::Start(serving->host, serving->kv, *account, *request, response);
}

grpc::ServerUnaryReactor* StepService::ReadBlocks(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return StartKvCall<ReadBlocksCall>(context, "ReadBlocks", request, response);
}

grpc::ServerUnaryReactor* StepService::WriteBlocks(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return StartKvCall<WriteBlocksCall>(context, "WriteBlocks", request, response);
}

grpc::ServerUnaryReactor* StepService::SwapOut(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return Unary<v1::SwapOutRequest, v1::SwapOutResponse>(
      context, request, response, {"SwapOut", Role::kStep, &StepService::SwapOut});
}

grpc::ServerUnaryReactor* StepService::SwapOutState(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return Unary<v1::SwapOutStateRequest, v1::SwapOutStateResponse>(
      context, request, response, {"SwapOutState", Role::kStep, &StepService::SwapOutState});
}

grpc::ServerUnaryReactor* StepService::SwapIn(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return Unary<v1::SwapInRequest, v1::SwapInResponse>(
      context, request, response, {"SwapIn", Role::kStep, &StepService::SwapIn});
}

grpc::ServerUnaryReactor* StepService::FreeSwapped(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return Unary<v1::FreeSwappedRequest, v1::FreeSwappedResponse>(
      context, request, response, {"FreeSwapped", Role::kStep, &StepService::FreeSwapped});
}

grpc::ServerUnaryReactor* StepService::ShareBlocks(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return Unary<v1::ShareBlocksRequest, v1::ShareBlocksResponse>(
      context, request, response, {"ShareBlocks", Role::kStep, &StepService::ShareBlocks});
}

grpc::ServerUnaryReactor* StepService::AdoptBlocks(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return StartKvCall<AdoptBlocksCall>(context, "AdoptBlocks", request, response);
}

grpc::ServerUnaryReactor* StepService::ReleaseBlocks(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Unary<v1::ReleaseBlocksRequest, v1::ReleaseBlocksResponse>(
      context, request, response, {"ReleaseBlocks", Role::kStep, &StepService::ReleaseBlocks});
}

grpc::ServerUnaryReactor* StepService::ExportBlocks(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return StartKvCall<ExportBlocksCall>(context, "ExportBlocks", request, response);
}

grpc::ServerUnaryReactor* StepService::ImportBlocks(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return StartKvCall<ImportBlocksCall>(context, "ImportBlocks", request, response);
}

grpc::ServerUnaryReactor* StepService::FreeExported(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return Unary<v1::FreeExportedRequest, v1::FreeExportedResponse>(
      context, request, response, {"FreeExported", Role::kStep, &StepService::FreeExported});
}

grpc::ServerUnaryReactor* StepService::SetAttentionTree(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Unary<v1::SetAttentionTreeRequest, v1::SetAttentionTreeResponse>(
      context, request, response,
      {"SetAttentionTree", Role::kAdminister, &StepService::SetAttentionTree});
}

grpc::ServerUnaryReactor* StepService::SetBuckets(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Unary<v1::SetBucketsRequest, v1::SetBucketsResponse>(
      context, request, response, {"SetBuckets", Role::kAdminister, &StepService::SetBuckets});
}

grpc::ServerUnaryReactor* StepService::ListSessions(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return Unary<v1::ListSessionsRequest, v1::ListSessionsResponse>(
      context, request, response, {"ListSessions", Role::kAdminister, &StepService::ListSessions});
}

grpc::ServerUnaryReactor* StepService::EvictSession(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return Unary<v1::EvictSessionRequest, v1::EvictSessionResponse>(
      context, request, response, {"EvictSession", Role::kAdminister, &StepService::EvictSession});
}

grpc::ServerUnaryReactor* StepService::ReloadFiles(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return Unary<v1::ReloadFilesRequest, v1::ReloadFilesResponse>(
      context, request, response, {"ReloadFiles", Role::kAdminister, &StepService::ReloadFiles});
}

grpc::ServerUnaryReactor* StepService::StartProfile(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return Unary<v1::StartProfileRequest, v1::StartProfileResponse>(
      context, request, response, {"StartProfile", Role::kAdminister, &StepService::StartProfile});
}

grpc::ServerUnaryReactor* StepService::ReadTelemetry(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Unary<v1::ReadTelemetryRequest, v1::ReadTelemetryResponse>(
      context, request, response,
      {"ReadTelemetry", Role::kAdminister, &StepService::ReadTelemetry});
}

}  // namespace reprise::service
