// SPDX-License-Identifier: Apache-2.0
// KvCall: one ReadBlocks, WriteBlocks, ExportBlocks, ImportBlocks or AdoptBlocks: looks at the
// message, finds its session, waits its turn in the queue, answers. AdoptBlocks waits only where
// its session is recorded, since what is in the blocks is read then; a full queue costs it the
// recording. Threads: gRPC calls the reactions, the queue's thread answers, or the one that brought
// the call where it does not wait. Frees itself when the call is over.
#ifndef REPRISE_SERVICE_KV_KV_CALL_H_
#define REPRISE_SERVICE_KV_KV_CALL_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "reprise/v1/step_service.pb.h"
#include "service/kv/kv_exchange.h"
#include "service/kv/kv_queue.h"
#include "service/service_host.h"

namespace reprise::service {

// What all of them share; outlives them.
struct KvService {
  std::string model;               // its fingerprint; "": not known
  KvExchange* exchange = nullptr;  // nullptr: blocks are neither exported nor imported
  KvQueue queue = {};
};

// Request: v1::ReadBlocksRequest, or that of another of the five.
template <typename Request>
class KvCall final : public grpc::ServerUnaryReactor, public KvJob {
 public:
  // The reactor of a new call, of `account`. `request` and `response` live until it is over.
  static grpc::ServerUnaryReactor* Start(const ServiceHost& host, KvService& kv,
                                         const Account& account, const grpc::ByteBuffer& request,
                                         grpc::ByteBuffer* response);

  void OnCancel() override { cancelled_.store(true, std::memory_order_release); }
  // After the thread that ended the call has released its lock, and behind OnCancel.
  void OnDone() override {
    static_cast<void>(cancelled_.load(std::memory_order_acquire));
    { const std::lock_guard lock(mutex_); }
    delete this;
  }
  void Run() override;
  void Answer() override;

 private:
  KvCall(const ServiceHost& host, KvService& kv, grpc::ByteBuffer* response)
      : host_(host), kv_(kv), response_bytes_(response) {}
  // `queued`: it waits in the queue, and may be over already; otherwise it is to run now. Errors
  // end the call.
  absl::Status Enqueue(const Account& account, const grpc::ByteBuffer& bytes, bool* queued);
  absl::Status Push(bool* queued);
  absl::Status Do();

  const ServiceHost host_;
  KvService& kv_;
  grpc::ByteBuffer* const response_bytes_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;  // held while the call is ended
  CallInSession session_;
  MemoryBudget::Charge charge_;  // of the request, then of the answer
  Request request_;
  absl::Status status_;  // of Run
};

using ReadBlocksCall = KvCall<v1::ReadBlocksRequest>;
using WriteBlocksCall = KvCall<v1::WriteBlocksRequest>;
using ExportBlocksCall = KvCall<v1::ExportBlocksRequest>;
using ImportBlocksCall = KvCall<v1::ImportBlocksRequest>;
using AdoptBlocksCall = KvCall<v1::AdoptBlocksRequest>;

// FreeExported waits for nobody. Errors: as theirs.
absl::Status FreeExported(const ServiceHost& host, const KvService& kv,
                          const ServedSession& session, const v1::FreeExportedRequest& request,
                          v1::FreeExportedResponse* response);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_KV_CALL_H_
