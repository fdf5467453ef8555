// SPDX-License-Identifier: Apache-2.0
// How records lie in a file (docs/record.md): a line that names the format and its version, then
// one record after another, each framed so that a file that was cut off is read up to its last
// whole record, and a byte that changed is noticed. What a record says:
// proto/reprise/v1/record.proto. Threads: free functions without state.
#ifndef REPRISE_SERVICE_RECORD_RECORD_FORMAT_H_
#define REPRISE_SERVICE_RECORD_RECORD_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/model_source.h"
#include "reprise/v1/record.pb.h"

namespace reprise::service {

// Of files that are written. Version 2 has calls about KV blocks, of which version 1 has none; both
// are read.
inline constexpr uint32_t kRecordVersion = 2;
inline constexpr uint32_t kOldestRecordVersion = 1;
// The first line of a file, with its end: "reprise-record 2\n".
std::string RecordFirstLine(uint32_t version = kRecordVersion);

// What a frame adds to a record: its length and that length's checksum in front, the record's
// checksum behind, four bytes each, little-endian.
inline constexpr size_t kFrameBytes = 12;
inline constexpr size_t kFrameHeadBytes = 8;
// Longer than any message that a server takes or sends.
inline constexpr uint32_t kMaxRecordBytes = (uint32_t{1} << 31) - 1;

// CRC-32C (Castagnoli) of `bytes`.
uint32_t Crc32c(std::string_view bytes);

// Appends the frame of `record`. REQUIRES: at most kMaxRecordBytes.
void AppendFramed(std::string_view record, std::string* out);

// A file as far as it could be read.
struct Recording {
  std::string name;  // of the file, for messages
  v1::RecordHeader header;
  std::vector<v1::SessionRecord> calls;         // as they stand in the file: by when they ended
  std::optional<v1::RecordEndReason> end = {};  // unset: the file was cut off
  uint64_t bytes_cut_off = 0;                   // of a last record that is not whole
};

// Reads a file's bytes. One that was cut off is no error, where at least its header is whole.
// Errors: OutOfRange (its end comes before that of its header, so that nothing is known of the
// session: it is empty, or was cut off there), InvalidArgument (no recording), Unimplemented
// (another version: got, allowed), DataLoss (a record whose checksum is wrong, that is none, or
// that contradicts itself or the header: which, and where).
absl::StatusOr<Recording> ParseRecording(const std::string& name, std::string_view bytes);
// The same of a file. Errors: also NotFound, PermissionDenied, Unavailable.
absl::StatusOr<Recording> ReadRecording(const std::string& path);

// SHA-256 of the directory's config.json; "" for a preset. Errors: as ReadRecording's of a file.
absl::StatusOr<std::string> ConfigSha256(const models::ModelSource& source);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_RECORD_FORMAT_H_
