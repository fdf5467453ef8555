// SPDX-License-Identifier: Apache-2.0
// Messages of any kind as bytes. Threads: free functions without state.
#ifndef REPRISE_SERVICE_WIRE_MESSAGE_H_
#define REPRISE_SERVICE_WIRE_MESSAGE_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::service {

// Bytes to message. Errors: InvalidArgument names the message type.
absl::Status ParseWire(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);
// The same of a stream's message that was parsed before: its step keeps the memory of its arrays.
absl::Status ParseWireAgain(const grpc::ByteBuffer& bytes, v1::StepStreamRequest* message);
// Message to bytes. Cannot fail for a message of ours.
grpc::ByteBuffer SerializeWire(const google::protobuf::Message& message);
// The same, as bytes that can be kept and sent again.
grpc::Slice SerializeToSlice(const google::protobuf::Message& message);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_MESSAGE_H_
