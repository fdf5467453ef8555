// SPDX-License-Identifier: Apache-2.0
// StepStream: one StepStream call: opens a session with the first message, or resumes one, feeds
// the pipeline, answers in order, and lets go of the session when the call ends: closes it, or
// leaves it for a stream that resumes it (session_registry.h). Reads no further while too many
// steps are unanswered, or while these take too much memory, so a client that never reads its
// results cannot grow the server's memory.
//
// Threads: gRPC calls the reactions, the pipeline answers steps, Drain comes from the server's
// owner. Owns itself until OnDone.
#ifndef REPRISE_SERVICE_STEP_STREAM_H_
#define REPRISE_SERVICE_STEP_STREAM_H_

#include <cstddef>
#include <cstdint>
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
#include "service/call_origin.h"
#include "service/clock.h"
#include "service/service_host.h"
#include "service/session_registry.h"

namespace reprise::service {

class StepStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public Admission::Stream,
                         public SessionStream,
                         public std::enable_shared_from_this<StepStream> {
 public:
  // The reactor of a new call, of `account`; one that refuses while draining. Frees itself when the
  // call is over.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      const ServiceHost& host, Account& account, grpc::CallbackServerContext& context);
  // The reactor of a call that is refused at once.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Refuse(
      const absl::Status& status);
  StepStream(const ServiceHost& host, Account& account, grpc::CallbackServerContext& context);
  ~StepStream() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void Drain() override;
  void EndIfIdle(uint64_t since_ns) override;
  void CutIfLost(uint64_t since_ns) override;
  void LoseSession(const absl::Status& why) override;
  void GainSession() override;

 private:
  // A client message and its answer. Recycled: its messages and arrays keep their memory.
  struct Exchange;

  // Takes the message that was read; the stream's first opens the session.
  void HandleMessage(uint64_t received_ns);
  void HandleFirst(std::unique_ptr<Exchange> exchange, absl::Status parsed);
  absl::Status OpenSession(const v1::StepStreamRequest& message);
  // Asks for the session, which GainSession then brings.
  absl::Status AskForSession(const v1::Resume& message);
  // What the client has not seen, to be written.
  absl::Status AddResumed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLastSeen(uint64_t last_sequence) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleStep(std::unique_ptr<Exchange> exchange, absl::Status parsed);
  // Bytes to the exchange's message, charged for what it takes.
  absl::Status Parse(Exchange& exchange);
  // Checks the envelope and converts the step.
  absl::Status Convert(Exchange& exchange) const;
  // `exchange`, which is in exchanges_, has its answer; not where `written` is an error.
  void Answered(Exchange* exchange, const absl::Status& written);

  std::unique_ptr<Exchange> TakeSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether it is drained, and unary steps of its session, which it keeps, are answered first.
  bool AwaitsUnarySteps() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return draining_ && has_session_ && session_->answers.IsBusy();
  }
  // Does what the state allows: the next write, the next read, the end.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PopFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The exchange's answer as bytes; those of steps are kept for a client that resumes.
  absl::Status Encode(Exchange& exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes nothing more and ends with `status` once nothing is in the pipeline.
  void Break(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends without an answer to what has not run. `session_is_lost`: another stream has it.
  void EndAtOnce(const absl::Status& why, bool session_is_lost);
  void EndIfNothingWasAsked(uint64_t since_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets go of a session that is lost, once its steps in flight have ended and their answers are
  // kept.
  void ReleaseIfLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets go of the session. `lost`: not closed by its client, nor ended by the server.
  void ReleaseSession(bool lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cancels the call, which a write may wait for.
  void Cut();

  const ServiceHost host_;
  Account& account_;
  grpc::CallbackServerContext& context_;  // of the call: until OnDone
  const CallOrigin origin_;

  std::mutex mutex_;
  std::shared_ptr<StepStream> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  const uint64_t started_ns_ = NowNs();
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ServedSession> session_;              // set once, before opened_ and waits_
  bool has_session_ ABSL_GUARDED_BY(mutex_) = false;    // until it lets go of it
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;          // for the session: reads nothing meanwhile
  uint64_t last_seen_ ABSL_GUARDED_BY(mutex_) = 0;      // Resume.last_sequence
  uint64_t charged_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of exchanges_
  // In arrival order; the front one is being written or is next.
  std::deque<std::unique_ptr<Exchange>> exchanges_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Exchange>> spare_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer read_bytes_;   // gRPC's, then OnReadDone's, while reading_
  grpc::ByteBuffer write_bytes_;  // gRPC's while writing_
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t write_started_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // of the answer that is being written
  uint64_t num_unanswered_ ABSL_GUARDED_BY(mutex_) = 0;    // of exchanges_
  // Read no more; Finish with end_ when all is answered.
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;      // the client is gone: write no more
  bool is_lost_ ABSL_GUARDED_BY(mutex_) = false;     // ends without having been closed
  uint64_t lost_ns_ ABSL_GUARDED_BY(mutex_) = 0;     // since then another stream has the session
  bool cancelling_ ABSL_GUARDED_BY(mutex_) = false;  // context_ is in use: not finished before
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_STREAM_H_
