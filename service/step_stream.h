// SPDX-License-Identifier: Apache-2.0
// StepStream: one StepStream call: opens a session with the first message, feeds the pipeline,
// answers in order, and closes the session when the call ends, however it ends. Reads no further
// while too many steps are unanswered, so a client that never reads its results cannot grow the
// server's memory.
//
// Threads: gRPC calls the reactions, the pipeline answers steps, Drain comes from the server's
// owner. Owns itself until OnDone.
#ifndef REPRISE_SERVICE_STEP_STREAM_H_
#define REPRISE_SERVICE_STEP_STREAM_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "reprise/v1/step_service.pb.h"
#include "service/admission.h"
#include "service/step_pipeline.h"

namespace reprise::service {

// What a stream works with. All of it outlives every stream.
struct StreamHost {
  engine::DecodeEngine& engine;
  StepPipeline& pipeline;
  Admission& admission;
};

class StepStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public Admission::Stream,
                         public std::enable_shared_from_this<StepStream> {
 public:
  // The reactor of a new call; one that refuses while draining. Frees itself when the call is over.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(const StreamHost& host);
  // The reactor of a call that is refused at once.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Refuse(
      const absl::Status& status);
  explicit StepStream(const StreamHost& host);
  ~StepStream() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void Drain() override;

 private:
  // A client message and its answer. Recycled: its messages and arrays keep their memory.
  struct Exchange;

  // Takes the first message.
  void HandleOpen(std::unique_ptr<Exchange> exchange, absl::Status parsed);
  absl::Status OpenSession(const v1::StepStreamRequest& message);
  // Takes any later message.
  void HandleStep(std::unique_ptr<Exchange> exchange, absl::Status parsed);
  // Checks the envelope and converts the step.
  absl::Status Convert(Exchange& exchange) const;
  // `exchange`, which is in exchanges_, has its answer.
  void Answered(Exchange* exchange);

  std::unique_ptr<Exchange> TakeSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does what the state allows: the next write, the next read, the end.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PopFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StreamHost host_;
  const size_t max_unanswered_;

  std::mutex mutex_;
  std::shared_ptr<StepStream> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  engine::SessionInfo session_;  // set once, before opened_
  // In arrival order; the front one is being written or is next.
  std::deque<std::unique_ptr<Exchange>> exchanges_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Exchange>> spare_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer read_bytes_;   // gRPC's, then OnReadDone's, while reading_
  grpc::ByteBuffer write_bytes_;  // gRPC's while writing_
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // Read no more; Finish with end_ when all is answered.
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // the client is gone: write no more
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_STREAM_H_
