// SPDX-License-Identifier: Apache-2.0
// StepService: the handlers of reprise.v1.StepService over one DecodeEngine. It serves raw bytes,
// so that a message that does not parse gets a typed error of ours. It exists before the engine
// does: until Attach every call answers UNAVAILABLE ("loading").
#ifndef REPRISE_SERVICE_STEP_SERVICE_H_
#define REPRISE_SERVICE_STEP_SERVICE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "service/admission.h"
#include "service/files_change.h"
#include "service/identity/callers.h"
#include "service/joint_limits.h"
#include "service/memory_budget.h"
#include "service/record/recorder.h"
#include "service/service_host.h"
#include "service/session_registry.h"
#include "service/telemetry.h"

namespace reprise::service {

class KvExchange;

// What clients may take of the server; see ServerOptions.
struct ServiceLimits {
  uint64_t max_message_bytes = 0;
  uint64_t max_waiting_bytes = 0;
  uint32_t max_sessions = 0;
  engine::SessionLimits session = {};  // of each
  uint64_t idle_timeout_ms = 0;        // 0: none
  uint64_t max_resume_grace_ms = 0;
  bool allow_attention_trees = false;
  bool allow_administration = false;
  JointLimits joint = {};
  std::string model = {};  // its fingerprint; see ServerOptions
};

using RawKvService = v1::StepService::WithRawCallbackMethod_ReadBlocks<
    v1::StepService::WithRawCallbackMethod_WriteBlocks<
        v1::StepService::WithRawCallbackMethod_SwapOutState<
            v1::StepService::WithRawCallbackMethod_SwapOut<
                v1::StepService::WithRawCallbackMethod_SwapIn<
                    v1::StepService::WithRawCallbackMethod_FreeSwapped<
                        v1::StepService::WithRawCallbackMethod_ShareBlocks<
                            v1::StepService::WithRawCallbackMethod_AdoptBlocks<
                                v1::StepService::WithRawCallbackMethod_ReleaseBlocks<
                                    v1::StepService::WithRawCallbackMethod_ExportBlocks<
                                        v1::StepService::WithRawCallbackMethod_ImportBlocks<
                                            v1::StepService::WithRawCallbackMethod_FreeExported<
                                                v1::StepService::Service>>>>>>>>>>>>;
using RawStepService = v1::StepService::WithRawCallbackMethod_Describe<
    v1::StepService::WithRawCallbackMethod_Step<v1::StepService::WithRawCallbackMethod_StepStream<
        v1::StepService::WithRawCallbackMethod_Allocate<v1::StepService::WithRawCallbackMethod_Free<
            v1::StepService::WithRawCallbackMethod_SetAttentionTree<
                v1::StepService::WithRawCallbackMethod_ListSessions<
                    v1::StepService::WithRawCallbackMethod_EvictSession<
                        v1::StepService::WithRawCallbackMethod_ReloadFiles<
                            v1::StepService::WithRawCallbackMethod_SetBuckets<
                                v1::StepService::WithRawCallbackMethod_StartProfile<
                                    v1::StepService::WithRawCallbackMethod_ReadTelemetry<
                                        RawKvService>>>>>>>>>>>>;

class StepService final : public RawStepService {
 public:
  // `callers` must outlive the service. `report` is told, on a thread of the service's, that memory
  // ran out where no call was refused for it; may be empty.
  StepService(const ServiceLimits& limits, Callers& callers,
              std::function<void(const std::string&)> report = {});
  // After the gRPC server has shut down.
  ~StepService() override;

  // Serves `engine`, which must outlive this service, and so must `exchange`, of the same engine;
  // nullptr: none. Once only. `on_fault`: see StepPipeline.
  void Attach(engine::DecodeEngine& engine, KvExchange* exchange, std::function<void()> on_fault);
  // What metrics read: nullptr while loading; lives as long as the service.
  const ServiceHost* host() const;
  Telemetry& telemetry() { return telemetry_; }
  // Records sessions from here on. `recorder` must outlive the service. Before Attach, by the
  // owner.
  void SetRecorder(Recorder* recorder) { recorder_ = recorder; }

  // What ReloadFiles does. Before the first call, by the owner.
  using ReloadFn = std::function<absl::StatusOr<FilesChange>()>;
  void SetReload(ReloadFn reload) { reload_ = std::move(reload); }
  // These are the identities from now on, and sessions of those that are gone are ended. Errors
  // (nothing changed): Callers::Replace's.
  absl::StatusOr<FilesChange> ReplaceIdentities(const std::vector<Identity>& identities);

  // Attached, not draining, and the device works.
  bool IsServing() const;

  // No new streams and steps; streams end when their steps are answered.
  void Drain();
  // False when streams or unary steps were left at the deadline.
  bool WaitIdle(std::chrono::steady_clock::time_point deadline);

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Step(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepStream(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Free(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SetAttentionTree(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SetBuckets(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* EvictSession(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReloadFiles(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* StartProfile(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReadTelemetry(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReadBlocks(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* WriteBlocks(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SwapOut(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SwapOutState(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SwapIn(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* FreeSwapped(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ShareBlocks(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* AdoptBlocks(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReleaseBlocks(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ExportBlocks(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ImportBlocks(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* FreeExported(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;

 private:
  struct Attached;

  // nullptr while loading.
  Attached* attached() const { return attached_.load(std::memory_order_acquire); }
  absl::Status Describe(const Account& caller, const v1::DescribeRequest& request,
                        v1::DescribeResponse* response);
  absl::Status Allocate(ServedSession& session, const v1::AllocateRequest& request,
                        v1::AllocateResponse* response);
  absl::Status SetAttentionTree(const v1::SetAttentionTreeRequest& request,
                                v1::SetAttentionTreeResponse* response);
  absl::Status Free(ServedSession& session, const v1::FreeRequest& request,
                    v1::FreeResponse* response);
  absl::Status SwapOut(ServedSession& session, const v1::SwapOutRequest& request,
                       v1::SwapOutResponse* response);
  absl::Status SwapOutState(ServedSession& session, const v1::SwapOutStateRequest& request,
                            v1::SwapOutStateResponse* response);
  absl::Status SwapIn(ServedSession& session, const v1::SwapInRequest& request,
                      v1::SwapInResponse* response);
  absl::Status FreeSwapped(ServedSession& session, const v1::FreeSwappedRequest& request,
                           v1::FreeSwappedResponse* response);
  absl::Status ShareBlocks(ServedSession& session, const v1::ShareBlocksRequest& request,
                           v1::ShareBlocksResponse* response);
  absl::Status ReleaseBlocks(ServedSession& session, const v1::ReleaseBlocksRequest& request,
                             v1::ReleaseBlocksResponse* response);
  absl::Status FreeExported(ServedSession& session, const v1::FreeExportedRequest& request,
                            v1::FreeExportedResponse* response);
  // A call that waits its turn to copy contents of blocks.
  template <typename Call>
  grpc::ServerUnaryReactor* StartKvCall(grpc::CallbackServerContext* context, const char* name,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response);
  // Of servers without identities; elsewhere the role has been asked for. `what`: that is asked
  // for.
  absl::Status CheckAdministration(const char* what) const;
  absl::Status SetBuckets(const v1::SetBucketsRequest& request, v1::SetBucketsResponse* response);
  absl::Status ListSessions(const v1::ListSessionsRequest& request,
                            v1::ListSessionsResponse* response);
  absl::Status EvictSession(const v1::EvictSessionRequest& request,
                            v1::EvictSessionResponse* response);
  absl::Status ReloadFiles(const v1::ReloadFilesRequest& request,
                           v1::ReloadFilesResponse* response);
  absl::Status StartProfile(ServedSession& session, const v1::StartProfileRequest& request,
                            v1::StartProfileResponse* response);
  absl::Status ReadTelemetry(const v1::ReadTelemetryRequest& request,
                             v1::ReadTelemetryResponse* response);
  // A method that needs `role`, and what it does for a caller who has it: with the session that a
  // request names, where requests do.
  template <typename Request>
  static constexpr bool kNamesSession = requires(const Request& request) {
    request.session();
  };
  // Whether the answer is another one for another caller.
  template <typename Request>
  static constexpr bool kTellsCaller = std::is_same_v<Request, v1::DescribeRequest>;
  template <typename Request, typename Response>
  struct UnaryMethod {
    const char* name;
    Role role;
    std::conditional_t<
        kNamesSession<Request>,
        absl::Status (StepService::*)(ServedSession&, const Request&, Response*),
        std::conditional_t<kTellsCaller<Request>,
                           absl::Status (StepService::*)(const Account&, const Request&, Response*),
                           absl::Status (StepService::*)(const Request&, Response*)>>
        handle;
  };
  // Looks who asks, scans, finds the session, parses, calls the method, serialises, finishes.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                  const UnaryMethod<Request, Response>& method);

  // Ends idle streams, streams that have lost their sessions, and sessions whose grace time is
  // over, until the service goes. `timeout`: of idle streams, 0: none.
  void Watch(std::chrono::milliseconds timeout);
  void LookAround(uint64_t timeout_ns);
  void TellOutOfMemory();
  void EndExpiredSessions();

  const uint64_t max_message_bytes_;
  const uint64_t max_resume_grace_ms_;
  const uint32_t max_session_blocks_;  // 0: as many as the pool has
  const bool allow_attention_trees_;
  const bool allow_administration_;
  const JointLimits joint_;
  const std::string model_;
  Callers& callers_;
  const std::function<void(const std::string&)> report_;
  Admission admission_;
  MemoryBudget memory_;
  SessionRegistry sessions_;
  Telemetry telemetry_;
  std::mutex buckets_mutex_;  // held by SetBuckets from begin to end
  Recorder* recorder_ = nullptr;
  ReloadFn reload_;
  std::mutex identities_mutex_;      // orders Attach and ReplaceIdentities
  std::unique_ptr<Attached> owned_;  // written once, published by attached_
  std::atomic<Attached*> attached_ = nullptr;

  std::mutex mutex_;
  std::condition_variable stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The watcher's:
  std::vector<std::shared_ptr<ServedSession>> expired_;  // not ended yet
  bool told_out_of_memory_ = false;
  std::thread watcher_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_SERVICE_H_
