// SPDX-License-Identifier: Apache-2.0
#include "service/wire/scan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "runtime/status_macros.h"
#include "service/wire/utf8.h"

namespace reprise::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Longest `session` that is looked at; SessionToken has fewer bytes.
constexpr uint32_t kMaxSessionBytes = 64;

// Repeated fields of messages that one message can hold, at any depth: StepRequest has five.
constexpr size_t kMaxCountedFields = 8;

class Scanner {
 public:
  Scanner(google::protobuf::io::ZeroCopyInputStream* bytes, const Descriptor& type,
          uint32_t max_entries, WireHead* head)
      : input_(bytes), type_(type), max_entries_(max_entries), head_(head) {
    input_.SetTotalBytesLimit(std::numeric_limits<int>::max());
  }

  absl::Status Scan() { return ScanFields(type_); }

 private:
  // To the present limit of the input, or to its end.
  absl::Status ScanFields(const Descriptor& type) {
    while (const uint32_t tag = input_.ReadTag()) {
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* field = type.FindFieldByNumber(number);
      if ((tag & 7) > WireFormatLite::WIRETYPE_FIXED32) return Malformed();
      if (field == nullptr) {
        if (!WireFormatLite::SkipField(&input_, tag)) return Malformed();
        return absl::UnimplementedError(
            absl::StrCat(type.full_name(), ": field ", number,
                         " is not part of reprise.v1 as this server knows it"));
      }
      REPRISE_RETURN_IF_ERROR(ScanField(*field, WireFormatLite::GetTagWireType(tag)));
    }
    // A tag of zero stands at the end of what may be read, or where none can be.
    return input_.ConsumedEntireMessage() ? absl::OkStatus() : Malformed();
  }

  absl::Status ScanField(const FieldDescriptor& field, WireFormatLite::WireType wire_type) {
    const auto declared =
        WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
    const bool packed =
        field.is_packable() && wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (wire_type != declared && !packed) {
      return absl::UnimplementedError(absl::StrCat(field.full_name(), ": got wire type ",
                                                   static_cast<int>(wire_type), ", allowed ",
                                                   static_cast<int>(declared)));
    }
    if (wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return ScanBytes(field);
    uint64_t value = 0;
    if (!ReadNumber(wire_type, &value)) return Malformed();
    if (field.name() == "sequence") head_->sequence = value;
    return absl::OkStatus();
  }

  absl::Status ScanBytes(const FieldDescriptor& field) {
    uint32_t length = 0;
    if (!input_.ReadVarint32(&length) || length > std::numeric_limits<int>::max())
      return Malformed();
    if (field.message_type() != nullptr) return ScanMessage(field, static_cast<int>(length));
    if (field.name() == "session" && length <= kMaxSessionBytes) {
      return input_.ReadString(&head_->session, static_cast<int>(length)) ? absl::OkStatus()
                                                                          : Malformed();
    }
    if (field.type() == FieldDescriptor::TYPE_STRING)
      return ScanText(field, static_cast<int>(length));
    return input_.Skip(static_cast<int>(length)) ? absl::OkStatus() : Malformed();
  }

  // libprotobuf would refuse the message as well, and write a line about it to stderr.
  absl::Status ScanText(const FieldDescriptor& field, int length) {
    Utf8Check text;
    while (length > 0) {
      const void* data = nullptr;
      int size = 0;
      if (!input_.GetDirectBufferPointer(&data, &size)) return Malformed();
      size = std::min(size, length);
      const bool good = text.Add({static_cast<const char*>(data), static_cast<size_t>(size)});
      length -= size;
      if (!input_.Skip(size)) return Malformed();
      if (good && (length > 0 || text.whole())) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(field.full_name(), ": got bytes that are no UTF-8, allowed: text"));
    }
    return absl::OkStatus();
  }

  absl::Status ScanMessage(const FieldDescriptor& field, int length) {
    if (field.is_repeated()) REPRISE_RETURN_IF_ERROR(Count(field));
    const auto outer = input_.PushLimit(length);
    const absl::Status scanned = ScanFields(*field.message_type());
    const bool whole = input_.BytesUntilLimit() == 0;
    input_.PopLimit(outer);
    if (scanned.ok() && !whole) return Malformed();
    return scanned;
  }

  absl::Status Count(const FieldDescriptor& field) {
    auto* counter = std::find_if(counters_.begin(), counters_.end(), [&field](const auto& of) {
      return of.first == &field || of.first == nullptr;
    });
    if (counter == counters_.end()) return Malformed();
    counter->first = &field;
    ++head_->num_entries;
    if (++counter->second <= max_entries_) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat(field.name(), ": got more than ", max_entries_,
                                              " entries, allowed ", max_entries_));
  }

  bool ReadNumber(WireFormatLite::WireType wire_type, uint64_t* value) {
    uint32_t fixed = 0;
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_VARINT:
        return input_.ReadVarint64(value);
      case WireFormatLite::WIRETYPE_FIXED64:
        return input_.ReadLittleEndian64(value);
      case WireFormatLite::WIRETYPE_FIXED32:
        return input_.ReadLittleEndian32(&fixed);
      default:
        return false;
    }
  }

  absl::Status Malformed() const {
    return absl::InvalidArgumentError(
        absl::StrCat("message: got bytes that do not parse, allowed a ", type_.full_name()));
  }

  google::protobuf::io::CodedInputStream input_;
  const Descriptor& type_;
  const uint32_t max_entries_;
  WireHead* const head_;
  std::array<std::pair<const FieldDescriptor*, uint32_t>, kMaxCountedFields> counters_ = {};
};

}  // namespace

absl::Status ScanWire(const grpc::ByteBuffer& bytes, const Descriptor& type, uint32_t max_entries,
                      WireHead* head) {
  *head = WireHead{};
  grpc::ByteBuffer shared = bytes;  // shares the bytes; the reader wants a mutable handle
  grpc::ProtoBufferReader reader(&shared);
  if (!reader.status().ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: got bytes that cannot be read, allowed a ", type.full_name()));
  }
  return Scanner(&reader, type, max_entries, head).Scan();
}

}  // namespace reprise::service
