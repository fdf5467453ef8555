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
#include "service/status.h"
#include "service/step_stream.h"
#include "service/wire/describe_to_wire.h"
#include "service/wire/message.h"
#include "service/wire/result_to_wire.h"
#include "service/wire/step_from_wire.h"

namespace reprise::service {
namespace {

absl::Status Loading() {
  return absl::UnavailableError("loading: the model is not ready yet; watch the health service");
}

absl::Status CheckOpen(const engine::DecodeEngine& engine, engine::SessionId session) {
  if (engine.IsOpen(session)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("session: got ", session, ", allowed one that is open on a StepStream"));
}

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

struct StepService::Attached {
  Attached(engine::DecodeEngine& served, Admission& admission, std::function<void()> on_fault)
      : engine(served),
        pipeline(served, std::move(on_fault)),
        stream_host{engine, pipeline, admission} {}

  engine::DecodeEngine& engine;
  StepPipeline pipeline;
  StreamHost stream_host;
};

// One unary Step: parses, waits its turn in the pipeline, answers, frees itself. A client that
// gives up meanwhile changes nothing: its step has been accepted, and runs.
class StepService::UnaryStep final : public StepJob {
 public:
  UnaryStep(StepService& service, grpc::ServerUnaryReactor* reactor, grpc::ByteBuffer* response)
      : service_(service), reactor_(reactor), response_bytes_(response) {}

  // Errors leave the job unqueued.
  absl::Status Prepare(const grpc::ByteBuffer& bytes, const engine::DecodeEngine& engine) {
    times.received_ns = NowNs();
    REPRISE_RETURN_IF_ERROR(ParseWire(bytes, &message_));
    REPRISE_RETURN_IF_ERROR(StepFromWire(message_, &scratch_, &request));
    times.converted_ns = NowNs();
    REPRISE_RETURN_IF_ERROR(service_.admission_.CheckAdmitting());
    REPRISE_RETURN_IF_ERROR(CheckOpen(engine, request.session));
    return service_.admission_.BeginStep(request.session, 2 * engine.info().limits.pipeline_depth);
  }

  void Finished(const absl::Status& status, const engine::StepResult* result) override {
    const std::unique_ptr<UnaryStep> self(this);
    const engine::SessionId session = request.session;
    if (status.ok()) {
      v1::StepResponse response;
      ResultToWire(*result, times, message_.omit_rows(), &response);
      SetReplyTimes(times, NowNs(), response.mutable_ledger());
      *response_bytes_ = SerializeWire(response);
    }
    reactor_->Finish(ToGrpcStatus(status));
    service_.admission_.EndStep(session);
  }

 private:
  StepService& service_;
  grpc::ServerUnaryReactor* reactor_;
  grpc::ByteBuffer* response_bytes_;
  v1::StepRequest message_;
  StepScratch scratch_;
};

StepService::StepService(uint64_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

// gRPC has called every stream's OnDone by now; its own locks say so, which no tool can see that
// watches ours.
StepService::~StepService() { admission_.Settle(); }

void StepService::Attach(engine::DecodeEngine& engine, std::function<void()> on_fault) {
  REPRISE_CHECK(owned_ == nullptr);
  owned_ = std::make_unique<Attached>(engine, admission_, std::move(on_fault));
  attached_.store(owned_.get(), std::memory_order_release);
}

bool StepService::IsServing() const {
  const Attached* serving = attached();
  return serving != nullptr && admission_.CheckAdmitting().ok() && serving->engine.health().ok();
}

void StepService::Drain() { admission_.Drain(); }

bool StepService::WaitIdle(std::chrono::steady_clock::time_point deadline) {
  return admission_.WaitIdle(deadline);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepService::StepStream(
    grpc::CallbackServerContext* /*context*/) {
  Attached* serving = attached();
  if (serving == nullptr) return service::StepStream::Refuse(Loading());
  return service::StepStream::Start(serving->stream_host);
}

grpc::ServerUnaryReactor* StepService::Step(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  Attached* serving = attached();
  if (serving == nullptr) return Finish(context, Loading());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto step = std::make_unique<UnaryStep>(*this, reactor, response);
  const absl::Status ready = step->Prepare(*request, serving->engine);
  if (ready.ok()) {
    serving->pipeline.Enqueue(step.release());  // frees itself when finished
  } else {
    reactor->Finish(ToGrpcStatus(ready));
  }
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* StepService::Unary(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response, absl::Status (StepService::*handle)(const Request&, Response*)) {
  if (attached() == nullptr) return Finish(context, Loading());
  Request wire_request;
  Response wire_response;
  absl::Status status = ParseWire(*request, &wire_request);
  if (status.ok()) status = RefuseUnknownFields(wire_request);
  if (status.ok()) status = (this->*handle)(wire_request, &wire_response);
  if (status.ok()) *response = SerializeWire(wire_response);
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

absl::Status StepService::Describe(const v1::DescribeRequest& /*request*/,
                                   v1::DescribeResponse* response) {
  const engine::DecodeEngine& engine = attached()->engine;
  DescribeToWire(engine.info(), engine.pool(), max_message_bytes_, response);
  return absl::OkStatus();
}

absl::Status StepService::Allocate(const v1::AllocateRequest& request,
                                   v1::AllocateResponse* response) {
  engine::DecodeEngine& engine = attached()->engine;
  REPRISE_RETURN_IF_ERROR(CheckOpen(engine, request.session()));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> blocks,
                           engine.AllocateBlocks(request.session(), request.count()));
  response->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  response->set_free_blocks(engine.pool().free_blocks);
  return absl::OkStatus();
}

absl::Status StepService::Free(const v1::FreeRequest& request, v1::FreeResponse* response) {
  engine::DecodeEngine& engine = attached()->engine;
  REPRISE_RETURN_IF_ERROR(CheckOpen(engine, request.session()));
  const std::span<const uint32_t> blocks(request.blocks().data(),
                                         static_cast<size_t>(request.blocks_size()));
  REPRISE_RETURN_IF_ERROR(engine.FreeBlocks(request.session(), blocks));
  response->set_free_blocks(engine.pool().free_blocks);
  return absl::OkStatus();
}

}  // namespace reprise::service
