// SPDX-License-Identifier: Apache-2.0
#include "service/step_service.h"

#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/out_of_memory.h"
#include "service/service_host.h"
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

}  // namespace

struct StepService::Attached {
  Attached(engine::DecodeEngine& engine, StepService& service, std::function<void()> on_fault)
      : pipeline(engine, std::move(on_fault)),
        host{engine, pipeline, service.sessions_, service.admission_, service.memory_} {}

  StepPipeline pipeline;
  const ServiceHost host;
};

StepService::StepService(const ServiceLimits& limits)
    : max_message_bytes_(limits.max_message_bytes),
      allow_attention_trees_(limits.allow_attention_trees),
      sessions_(limits.max_sessions, limits.session),
      memory_(limits.max_waiting_bytes, limits.max_message_bytes) {
  if (limits.idle_timeout_ms == 0) return;
  const std::chrono::milliseconds timeout(limits.idle_timeout_ms);
  idle_watcher_ = std::thread([this, timeout] { WatchIdle(timeout); });
}

// gRPC has called every stream's OnDone by now; its own locks say so, which no tool can see that
// watches ours.
StepService::~StepService() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopping_changed_.notify_all();
  if (idle_watcher_.joinable()) idle_watcher_.join();
  admission_.Settle();
}

void StepService::WatchIdle(std::chrono::milliseconds timeout) {
  const auto timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  std::unique_lock lock(mutex_);
  while (!stopping_changed_.wait_for(lock, timeout / 4, [this] { return stopping_; })) {
    const uint64_t now_ns = NowNs();
    if (now_ns > timeout_ns) admission_.EndIdleStreams(now_ns - timeout_ns);
  }
}

void StepService::Attach(engine::DecodeEngine& engine, std::function<void()> on_fault) {
  REPRISE_CHECK(owned_ == nullptr);
  owned_ = std::make_unique<Attached>(engine, *this, std::move(on_fault));
  attached_.store(owned_.get(), std::memory_order_release);
}

bool StepService::IsServing() const {
  const Attached* serving = attached();
  return serving != nullptr && admission_.CheckAdmitting().ok() &&
         serving->host.engine.health().ok();
}

void StepService::Drain() { admission_.Drain(); }

bool StepService::WaitIdle(std::chrono::steady_clock::time_point deadline) {
  return admission_.WaitIdle(deadline);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepService::StepStream(
    grpc::CallbackServerContext* context) {
  Attached* serving = attached();
  if (serving == nullptr) return service::StepStream::Refuse(Loading());
  return service::StepStream::Start(serving->host, *context);
}

grpc::ServerUnaryReactor* StepService::Step(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  Attached* serving = attached();
  if (serving == nullptr) return Finish(context, Loading());
  return UnaryStep::Start(serving->host, context->deadline(), *request, response);
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* StepService::Unary(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response, absl::Status (StepService::*handle)(const Request&, Response*)) {
  const Attached* serving = attached();
  if (serving == nullptr) return Finish(context, Loading());
  const absl::Status status = CatchOutOfMemory([&] {
    WireHead head;
    Request wire_request;
    Response wire_response;
    REPRISE_RETURN_IF_ERROR(
        ScanWire(*request, *Request::descriptor(), serving->host.max_entries(), &head));
    if constexpr (requires { wire_request.session(); })
      REPRISE_RETURN_IF_ERROR(sessions_.Find(head.session).status());
    REPRISE_ASSIGN_OR_RETURN(const MemoryBudget::Charge charge,
                             memory_.ChargeMessage(request->Length(), head.num_entries));
    REPRISE_RETURN_IF_ERROR(ParseWire(*request, &wire_request));
    REPRISE_RETURN_IF_ERROR((this->*handle)(wire_request, &wire_response));
    *response = SerializeWire(wire_response);
    return absl::OkStatus();
  });
  return Finish(context, status);
}

grpc::ServerUnaryReactor* StepService::Describe(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Unary<v1::DescribeRequest, v1::DescribeResponse>(context, request, response,
                                                          &StepService::Describe);
}

grpc::ServerUnaryReactor* StepService::Allocate(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Unary<v1::AllocateRequest, v1::AllocateResponse>(context, request, response,
                                                          &StepService::Allocate);
}

grpc::ServerUnaryReactor* StepService::Free(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return Unary<v1::FreeRequest, v1::FreeResponse>(context, request, response, &StepService::Free);
}

grpc::ServerUnaryReactor* StepService::SetAttentionTree(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Unary<v1::SetAttentionTreeRequest, v1::SetAttentionTreeResponse>(
      context, request, response, &StepService::SetAttentionTree);
}

absl::Status StepService::Describe(const v1::DescribeRequest& /*request*/,
                                   v1::DescribeResponse* response) {
  const engine::DecodeEngine& engine = attached()->host.engine;
  DescribeToWire(engine.info(), engine.pool(), engine.attention_tree(), max_message_bytes_,
                 response);
  return absl::OkStatus();
}

absl::Status StepService::Allocate(const v1::AllocateRequest& request,
                                   v1::AllocateResponse* response) {
  engine::DecodeEngine& engine = attached()->host.engine;
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session()));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> blocks,
                           engine.AllocateBlocks(session->info.id, request.count()));
  response->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  response->set_free_blocks(engine.pool().free_blocks);
  return absl::OkStatus();
}

absl::Status StepService::Free(const v1::FreeRequest& request, v1::FreeResponse* response) {
  engine::DecodeEngine& engine = attached()->host.engine;
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           sessions_.Find(request.session()));
  const std::span<const uint32_t> blocks(request.blocks().data(),
                                         static_cast<size_t>(request.blocks_size()));
  REPRISE_RETURN_IF_ERROR(engine.FreeBlocks(session->info.id, blocks));
  response->set_free_blocks(engine.pool().free_blocks);
  return absl::OkStatus();
}

absl::Status StepService::SetAttentionTree(const v1::SetAttentionTreeRequest& request,
                                           v1::SetAttentionTreeResponse* response) {
  if (!allow_attention_trees_)
    return absl::PermissionDeniedError(
        "attention tree: this server takes none from clients; allowed where it is started with "
        "--allow-attention-trees");
  engine::DecodeEngine& engine = attached()->host.engine;
  REPRISE_ASSIGN_OR_RETURN(const uint64_t version, engine.SetAttentionTree(request.text()));
  response->set_version(version);
  return absl::OkStatus();
}

}  // namespace reprise::service
