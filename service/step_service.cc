// SPDX-License-Identifier: Apache-2.0
#include "service/step_service.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/end_session.h"
#include "service/kv/kv_call.h"
#include "service/kv/kv_wire.h"
#include "service/kv/shared_calls.h"
#include "service/kv/swap_calls.h"
#include "service/out_of_memory.h"
#include "service/profile_calls.h"
#include "service/profile_lease.h"
#include "service/session_admin.h"
#include "service/status.h"
#include "service/step_stream.h"
#include "service/unary_step.h"
#include "service/wire/describe_to_wire.h"
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

// Graphs of either kind that a client may ask for.
constexpr int kMaxBuckets = 256;

std::vector<std::string> NamesOf(const engine::GraphsInfo& graphs) {
  std::vector<std::string> names;
  for (const auto* buckets : {&graphs.decode_buckets, &graphs.mixed_buckets}) {
    for (const graphs::CapturedBucket& captured : *buckets) names.push_back(captured.bucket.name);
  }
  return names;
}

absl::StatusOr<std::vector<int64_t>> BucketsOf(
    const char* kind, const google::protobuf::RepeatedField<uint32_t>& wire) {
  if (wire.size() > kMaxBuckets)
    return absl::InvalidArgumentError(
        absl::StrCat(kind, ": got ", wire.size(), " buckets, allowed: at most ", kMaxBuckets));
  return std::vector<int64_t>(wire.begin(), wire.end());
}

}  // namespace

struct StepService::Attached {
  Attached(engine::DecodeEngine& engine, KvExchange* exchange, StepService& service,
           std::function<void()> on_fault)
      : pipeline(engine,
                 engine.attention_tree().batch_invariant ? service.joint_
                                                         : JointLimits{.max_requests = 1},
                 std::move(on_fault)),
        profile(engine),
        host{engine,           pipeline,           service.sessions_, service.admission_,
             service.memory_,  service.telemetry_, profile,           service.max_resume_grace_ms_,
             service.recorder_},
        kv{.model = service.model_, .exchange = exchange} {
    service.callers_.ForEachAccount(
        [this](Account& account, const Identity* identity) { SetUp(account, identity); });
  }

  // What an identity gets of the engine from now on.
  void SetUp(Account& account, const Identity* identity) {
    if (identity == nullptr) return;
    const engine::SessionLimits limits = {.max_rows = identity->quota.max_rows,
                                          .max_blocks = identity->quota.max_blocks};
    if (account.engine_account == 0) account.engine_account = host.engine.OpenAccount(limits);
    host.engine.SetAccountLimits(account.engine_account, limits);
    pipeline.SetShare(account.share, identity->weight, identity->priority);
  }

  StepPipeline pipeline;
  ProfileLease profile;
  const ServiceHost host;
  KvService kv;
};

StepService::StepService(const ServiceLimits& limits, Callers& callers,
                         std::function<void(const std::string&)> report)
    : max_message_bytes_(limits.max_message_bytes),
      max_resume_grace_ms_(limits.max_resume_grace_ms),
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
    if constexpr (requires { wire_request.session(); })
      REPRISE_RETURN_IF_ERROR(sessions_.Find(head.session, *account).status());
    REPRISE_ASSIGN_OR_RETURN(const MemoryBudget::Charge charge,
                             memory_.ChargeMessage(request->Length(), head.num_entries));
    REPRISE_RETURN_IF_ERROR(ParseWire(*request, &wire_request));
    REPRISE_RETURN_IF_ERROR((this->*method.handle)(*account, wire_request, &wire_response));
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
  return Unary<v1::AdoptBlocksRequest, v1::AdoptBlocksResponse>(
      context, request, response, {"AdoptBlocks", Role::kStep, &StepService::AdoptBlocks});
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

absl::Status StepService::Describe(const Account& /*account*/,
                                   const v1::DescribeRequest& /*request*/,
                                   v1::DescribeResponse* response) {
  const engine::DecodeEngine& engine = attached()->host.engine;
  DescribeToWire(engine.info(), engine.pool(), engine.captured_graphs(), engine.attention_tree(),
                 max_message_bytes_, response);
  KvLayoutToWire(engine.info().kv, model_, response->mutable_kv_layout());
  return absl::OkStatus();
}

absl::Status StepService::Allocate(const Account& account, const v1::AllocateRequest& request,
                                   v1::AllocateResponse* response) {
  engine::DecodeEngine& engine = attached()->host.engine;
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  SessionRecording* recording = session->recording.get();
  const SessionRecording::PoolLock order(recording);
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> blocks,
                           engine.AllocateBlocks(session->info.id, request.count()));
  const absl::Status answered = CatchOutOfMemory([&] {
    response->mutable_blocks()->Assign(blocks.begin(), blocks.end());
    response->set_free_blocks(engine.pool().free_blocks);
    return absl::OkStatus();
  });
  if (!answered.ok()) {
    // Their ids never reach the client.
    engine.FreeBlocks(session->info.id, blocks).IgnoreError();
    return answered;
  }
  if (recording != nullptr) recording->AddAllocate(request, *response);
  return absl::OkStatus();
}

absl::Status StepService::Free(const Account& account, const v1::FreeRequest& request,
                               v1::FreeResponse* response) {
  engine::DecodeEngine& engine = attached()->host.engine;
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  const std::span<const uint32_t> blocks(request.blocks().data(),
                                         static_cast<size_t>(request.blocks_size()));
  SessionRecording* recording = session->recording.get();
  const SessionRecording::PoolLock order(recording);
  REPRISE_RETURN_IF_ERROR(engine.FreeBlocks(session->info.id, blocks));
  if (recording != nullptr) recording->AddFree(request);
  response->set_free_blocks(engine.pool().free_blocks);
  return absl::OkStatus();
}

absl::Status StepService::SwapOut(const Account& account, const v1::SwapOutRequest& request,
                                  v1::SwapOutResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::SwapOut(attached()->host, *session, request, response);
}

absl::Status StepService::SwapOutState(const Account& account,
                                       const v1::SwapOutStateRequest& request,
                                       v1::SwapOutStateResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::SwapOutState(attached()->host, *session, request, response);
}

absl::Status StepService::SwapIn(const Account& account, const v1::SwapInRequest& request,
                                 v1::SwapInResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::SwapIn(attached()->host, *session, request, response);
}

absl::Status StepService::FreeSwapped(const Account& account, const v1::FreeSwappedRequest& request,
                                      v1::FreeSwappedResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::FreeSwapped(attached()->host, *session, request, response);
}

absl::Status StepService::ShareBlocks(const Account& account, const v1::ShareBlocksRequest& request,
                                      v1::ShareBlocksResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::ShareBlocks(attached()->host, *session, request, response);
}

absl::Status StepService::AdoptBlocks(const Account& account, const v1::AdoptBlocksRequest& request,
                                      v1::AdoptBlocksResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::AdoptBlocks(attached()->host, *session, request, response);
}

absl::Status StepService::ReleaseBlocks(const Account& account,
                                        const v1::ReleaseBlocksRequest& request,
                                        v1::ReleaseBlocksResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::ReleaseBlocks(attached()->host, *session, request, response);
}

absl::Status StepService::FreeExported(const Account& account,
                                       const v1::FreeExportedRequest& request,
                                       v1::FreeExportedResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::FreeExported(attached()->host, attached()->kv, *session, request, response);
}

absl::Status StepService::SetAttentionTree(const Account& /*account*/,
                                           const v1::SetAttentionTreeRequest& request,
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

absl::Status StepService::SetBuckets(const Account& /*account*/,
                                     const v1::SetBucketsRequest& request,
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

absl::Status StepService::StartProfile(const Account& account,
                                       const v1::StartProfileRequest& request,
                                       v1::StartProfileResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("profile"));
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session(), account));
  return service::StartProfile(attached()->host, *session, request, response);
}

absl::Status StepService::ReadTelemetry(const Account& /*account*/,
                                        const v1::ReadTelemetryRequest& /*request*/,
                                        v1::ReadTelemetryResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("telemetry"));
  service::ReadTelemetry(attached()->host, response);
  return absl::OkStatus();
}

absl::Status StepService::ListSessions(const Account& /*account*/,
                                       const v1::ListSessionsRequest& request,
                                       v1::ListSessionsResponse* response) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("sessions"));
  return service::ListSessions(attached()->host, request, response);
}

absl::Status StepService::EvictSession(const Account& /*account*/,
                                       const v1::EvictSessionRequest& request,
                                       v1::EvictSessionResponse* /*response*/) {
  REPRISE_RETURN_IF_ERROR(CheckAdministration("sessions"));
  return service::EvictSession(attached()->host, request);
}

absl::Status StepService::ReloadFiles(const Account& /*account*/,
                                      const v1::ReloadFilesRequest& /*request*/,
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
