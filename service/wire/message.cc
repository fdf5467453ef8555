// SPDX-License-Identifier: Apache-2.0
#include "service/wire/message.h"

#include "absl/strings/str_cat.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

namespace reprise::service {

absl::Status ParseWire(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  grpc::ByteBuffer shared = bytes;  // shares the bytes; the reader wants a mutable handle
  grpc::ProtoBufferReader reader(&shared);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("message: got ", bytes.Length(),
                                                 " bytes that do not parse, allowed a ",
                                                 message->GetDescriptor()->full_name()));
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
