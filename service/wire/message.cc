// SPDX-License-Identifier: Apache-2.0
#include "service/wire/message.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

namespace reprise::service {

namespace {

absl::Status MergeWire(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  grpc::ByteBuffer shared = bytes;  // shares the bytes; the reader wants a mutable handle
  grpc::ProtoBufferReader reader(&shared);
  google::protobuf::io::CodedInputStream input(&reader);
  input.SetTotalBytesLimit(std::numeric_limits<int>::max());
  if (reader.status().ok() && message->MergeFromCodedStream(&input) &&
      input.ConsumedEntireMessage()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("message: got ", bytes.Length(),
                                                 " bytes that do not parse, allowed a ",
                                                 message->GetDescriptor()->full_name()));
}

}  // namespace

absl::Status ParseWire(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  message->Clear();
  return MergeWire(bytes, message);
}

absl::Status ParseWireAgain(const grpc::ByteBuffer& bytes, v1::StepStreamRequest* message) {
  // Clear would free the step, as the member of a oneof. What has bytes names its member anew.
  if (message->has_step() && bytes.Length() > 0) {
    message->mutable_step()->Clear();
  } else {
    message->Clear();
  }
  return MergeWire(bytes, message);
}

grpc::ByteBuffer SerializeWire(const google::protobuf::Message& message) {
  const grpc::Slice slice = SerializeToSlice(message);
  return grpc::ByteBuffer(&slice, 1);
}

grpc::Slice SerializeToSlice(const google::protobuf::Message& message) {
  grpc::Slice slice(message.ByteSizeLong());
  // The slice is ours alone until it is wrapped; gRPC offers no mutable view of it.
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return slice;
}

}  // namespace reprise::service
