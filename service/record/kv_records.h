// SPDX-License-Identifier: Apache-2.0
// Records of calls about KV blocks (proto/reprise/v1/record.proto, from `write` on): whether one
// that was read from a file agrees with itself and with the server that was recorded, and what
// stands for a name in them. Threads: free functions without state.
#ifndef REPRISE_SERVICE_RECORD_KV_RECORDS_H_
#define REPRISE_SERVICE_RECORD_KV_RECORDS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "reprise/v1/record.pb.h"

namespace reprise::service {

// Stands for a name under which blocks are shared, in 64 hexadecimal digits of a SHA-256: where a
// server has no identities, whoever knows the name may use the blocks.
std::string SharedNameDigest(std::string_view name);

// How many calls about KV blocks the record says that it is of: one in a record of such a call.
int NumKvCalls(const v1::SessionRecord& record);

// Whether its lists go together, its blocks are of the recorded pool, its places of the recorded
// swap space, and contents of the size that layers and tokens make, with their checksums. REQUIRES:
// NumKvCalls is 1. Errors: DataLoss: what, got, allowed.
absl::Status CheckKvCall(const v1::RecordHeader& header, const v1::SessionRecord& record);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_KV_RECORDS_H_
