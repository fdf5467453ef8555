// SPDX-License-Identifier: Apache-2.0
// Scans a message's bytes before they are parsed: what the message would take once parsed is
// bounded, and fields that nobody here knows are refused by number, wherever they are nested.
// Step 1 of the way of a step. Threads: free functions without state.
#ifndef REPRISE_SERVICE_WIRE_SCAN_H_
#define REPRISE_SERVICE_WIRE_SCAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/support/byte_buffer.h"

namespace reprise::service {

// What a message says of itself at its head.
struct WireHead {
  std::string session;       // the field `session` of whatever message holds it
  uint64_t sequence = 0;     // StepRequest.sequence
  uint32_t num_entries = 0;  // of all repeated fields of messages
};

// `max_entries`: of each repeated field of messages, all its occurrences together; an entry of two
// bytes can take hundreds once parsed. Allocates nothing that grows with the message. Fills `head`
// as far as it comes. Errors: InvalidArgument (bytes that are no message of `type`, a text that is
// no UTF-8), Unimplemented (a field that is not part of the contract, or of another kind than
// there), OutOfRange (too many entries).
absl::Status ScanWire(const grpc::ByteBuffer& bytes, const google::protobuf::Descriptor& type,
                      uint32_t max_entries, WireHead* head);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_SCAN_H_
