// SPDX-License-Identifier: Apache-2.0
#include "service/record/record_format.h"

#include <openssl/sha.h>

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "models/weights/file_input.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "service/record/kv_records.h"

namespace reprise::service {
namespace {

// As models takes it.
constexpr size_t kMaxConfigBytes = size_t{16} << 20;

constexpr std::string_view kFirstWord = "reprise-record ";

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  constexpr uint32_t kReflectedPolynomial = 0x82f63b78;
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflectedPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

std::string FourBytes(uint32_t number) {
  std::string bytes(4, '\0');
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
  return bytes;
}

uint32_t NumberAt(std::string_view bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i)
    number |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return number;
}

// Walks over the frames of a file.
class FrameReader {
 public:
  FrameReader(const std::string& name, std::string_view bytes, size_t at)
      : name_(name), bytes_(bytes), at_(at) {}

  // The next record; nullopt at the end, and where the last one is not whole.
  absl::StatusOr<std::optional<std::string_view>> Next() {
    if (left() < kFrameHeadBytes) return std::optional<std::string_view>();
    const uint32_t size = NumberAt(bytes_, at_);
    if (NumberAt(bytes_, at_ + 4) != Crc32c(bytes_.substr(at_, 4)) || size > kMaxRecordBytes)
      return Corrupt("its length has a wrong checksum");
    if (left() - kFrameHeadBytes < size_t{size} + 4) return std::optional<std::string_view>();
    const std::string_view record = bytes_.substr(at_ + kFrameHeadBytes, size);
    if (NumberAt(bytes_, at_ + kFrameHeadBytes + size) != Crc32c(record))
      return Corrupt("its checksum is wrong");
    begin_ = at_;
    at_ += kFrameBytes + size;
    ++number_;
    return std::optional(record);
  }

  size_t left() const { return bytes_.size() - at_; }
  // Of the record that Next gave last.
  absl::Status Refuse(const std::string& what) const { return Damage(number_, begin_, what); }

 private:
  absl::Status Corrupt(const std::string& what) const { return Damage(number_ + 1, at_, what); }
  absl::Status Damage(size_t number, size_t at, const std::string& what) const {
    return absl::DataLossError(
        absl::StrCat(name_, ": record ", number, ", at byte ", at, ": ", what));
  }

  const std::string& name_;
  const std::string_view bytes_;
  size_t at_;
  size_t begin_ = 0;
  size_t number_ = 0;
};

struct FirstLine {
  size_t size = 0;  // where the records begin
  uint32_t version = 0;
};

absl::StatusOr<FirstLine> ParseFirstLine(const std::string& name, std::string_view bytes) {
  if (bytes.empty())
    return absl::OutOfRangeError(
        absl::StrCat(name, ": got an empty file, allowed: a recording of reprise serve --record"));
  for (uint32_t version = kOldestRecordVersion; version <= kRecordVersion; ++version) {
    const std::string expected = RecordFirstLine(version);
    if (bytes.starts_with(expected)) return FirstLine{.size = expected.size(), .version = version};
    if (std::string_view(expected).starts_with(bytes))
      return absl::OutOfRangeError(absl::StrCat(name, ": was cut off in its first line"));
  }
  const size_t end = bytes.find('\n');
  uint32_t version = 0;
  if (bytes.starts_with(kFirstWord) && end != bytes.npos &&
      absl::SimpleAtoi(std::string(bytes.substr(kFirstWord.size(), end - kFirstWord.size())),
                       &version))
    return absl::UnimplementedError(absl::StrCat(name, ": version of the recording: got ", version,
                                                 ", allowed: ", kOldestRecordVersion, " to ",
                                                 kRecordVersion));
  return absl::InvalidArgumentError(absl::StrCat(
      name,
      ": got a file that begins with something else, allowed: a recording of reprise serve "
      "--record"));
}

bool IsStepOrPoolCall(const v1::SessionRecord& record) {
  return (record.has_step() && record.has_answer()) ||
         (record.has_allocate() && record.has_allocated()) || record.has_free();
}

// Errors say what is wrong with the record alone.
absl::Status CheckCall(uint32_t version, const v1::RecordHeader& header,
                       const v1::SessionRecord& record) {
  const int num_kv_calls = NumKvCalls(record);
  if (num_kv_calls != 0 && version == 1)
    return absl::DataLossError("is a call about KV blocks, which files of version 1 have none of");
  if (IsStepOrPoolCall(record) ? num_kv_calls != 0 : num_kv_calls > 1)
    return absl::DataLossError("is several calls at once");
  if (num_kv_calls == 1) return CheckKvCall(header, record);
  if (IsStepOrPoolCall(record)) return absl::OkStatus();
  return absl::DataLossError("is no call: it was written by a later version of reprise serve");
}

}  // namespace

std::string RecordFirstLine(uint32_t version) {
  return absl::StrCat(std::string(kFirstWord), version, "\n");
}

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

void AppendFramed(std::string_view record, std::string* out) {
  REPRISE_CHECK(record.size() <= kMaxRecordBytes);
  const std::string size = FourBytes(static_cast<uint32_t>(record.size()));
  out->append(size).append(FourBytes(Crc32c(size)));
  out->append(record).append(FourBytes(Crc32c(record)));
}

absl::StatusOr<Recording> ParseRecording(const std::string& name, std::string_view bytes) {
  REPRISE_ASSIGN_OR_RETURN(const FirstLine first_line, ParseFirstLine(name, bytes));
  Recording recording;
  recording.name = name;
  FrameReader reader(name, bytes, first_line.size);
  bool has_header = false;
  while (true) {
    REPRISE_ASSIGN_OR_RETURN(const std::optional<std::string_view> bytes_of_record, reader.Next());
    if (!bytes_of_record) break;
    v1::SessionRecord record;
    if (!record.ParseFromArray(bytes_of_record->data(), static_cast<int>(bytes_of_record->size())))
      return reader.Refuse("is no message of reprise.v1.SessionRecord");
    if (recording.end) return reader.Refuse("stands behind the end");
    if (record.has_header() == has_header)
      return reader.Refuse(has_header ? "is a second header" : "is no header");
    if (!has_header) {
      has_header = true;
      recording.header = std::move(*record.mutable_header());
    } else if (record.has_end()) {
      recording.end = record.end().reason();
    } else {
      const absl::Status checked = CheckCall(first_line.version, recording.header, record);
      if (!checked.ok()) return reader.Refuse({checked.message().data(), checked.message().size()});
      recording.calls.push_back(std::move(record));
    }
  }
  if (!has_header) return absl::OutOfRangeError(absl::StrCat(name, ": was cut off in its header"));
  recording.bytes_cut_off = reader.left();
  if (recording.end && recording.bytes_cut_off != 0)
    return reader.Refuse(absl::StrCat("is the end, and ", reader.left(), " bytes stand behind it"));
  return recording;
}

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const std::string bytes,
                           models::ReadFile(path, std::numeric_limits<size_t>::max()));
  return ParseRecording(path, bytes);
}

absl::StatusOr<std::string> ConfigSha256(const models::ModelSource& source) {
  if (source.directory.empty()) return std::string();
  REPRISE_ASSIGN_OR_RETURN(const std::string config,
                           models::ReadFile(source.directory + "/config.json", kMaxConfigBytes));
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  ::SHA256(reinterpret_cast<const unsigned char*>(config.data()), config.size(),
           reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace reprise::service
