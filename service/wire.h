// SPDX-License-Identifier: Apache-2.0
// Wire to structs and back: the one place that knows both reprise/v1 messages and engine/step.h.
// Malformed messages, unknown fields and options that are not built yet are refused here, by name;
// meaning (rows, blocks, numbers) is the engine's to judge. Threads: free functions, no state but
// what is passed in.
#ifndef REPRISE_SERVICE_WIRE_H_
#define REPRISE_SERVICE_WIRE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "engine/step.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::service {

// Bytes to message. Errors: InvalidArgument names the message type.
absl::Status ParseWire(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);
// Message to bytes; replaces what `bytes` held. Cannot fail for a message of ours.
grpc::ByteBuffer SerializeWire(const google::protobuf::Message& message);

// Unimplemented when `message` itself (not what is nested in it) carries a field that this contract
// does not know: a newer client's option is refused by number, never ignored.
absl::Status RefuseUnknownFields(const google::protobuf::Message& message);

// The arrays of structs that a converted step's views point into. Reused from step to step, so that
// a steady state allocates nothing.
struct StepScratch {
  std::vector<engine::RowAdd> add;
  std::vector<engine::RowAppend> append;
  std::vector<engine::RowChunk> chunks;
  std::vector<engine::RowMask> masks;
  std::vector<engine::TokenBias> biases;  // of all added rows
};

// `step` views `wire` and `scratch`: both must stay as they are until the engine's Submit has
// returned. Errors: Unimplemented names the field; InvalidArgument on an unknown mode.
absl::Status StepFromWire(const v1::StepRequest& wire, StepScratch* scratch,
                          engine::StepRequest* step);

// When the service touched a step, NowNs() each. The engine's own times come with its result.
struct StepTimes {
  uint64_t received_ns = 0;   // message taken from gRPC
  uint64_t converted_ns = 0;  // structs ready
  uint64_t submitted_ns = 0;  // a place in the pipeline was free
  uint64_t result_ns = 0;     // result seen
};

// Everything but the times at which the reply leaves: see SetReplyTimes. Keeps the capacity of
// `wire`'s row columns.
void ResultToWire(const engine::StepResult& result, const StepTimes& times, bool omit_rows,
                  v1::StepResponse* wire);
// Fills reply_ns and total_ns; called at the moment the reply is handed to gRPC.
void SetReplyTimes(const StepTimes& times, uint64_t replied_ns, v1::StepLedger* ledger);

// What StepError carries.
void ErrorToWire(uint64_t sequence, const absl::Status& status, v1::StepError* wire);

void DescribeToWire(const engine::EngineInfo& info, const engine::PoolInfo& pool,
                    uint64_t max_message_bytes, v1::DescribeResponse* wire);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_H_
