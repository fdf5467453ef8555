// SPDX-License-Identifier: Apache-2.0
// Recordings as bytes: cut off anywhere, with any byte changed, of another version.
#include "service/record/record_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

v1::SessionRecord Header() {
  v1::SessionRecord record;
  record.mutable_header()->set_session(7);
  record.mutable_header()->mutable_server()->mutable_model()->set_name("tiny");
  return record;
}

v1::SessionRecord Step(uint64_t sequence) {
  v1::SessionRecord record;
  record.set_time_ns(1000 * sequence);
  record.mutable_step()->set_sequence(sequence);
  record.mutable_answer()->set_sequence(sequence);
  record.mutable_answer()->mutable_rows()->add_token(static_cast<uint32_t>(sequence));
  return record;
}

v1::SessionRecord End() {
  v1::SessionRecord record;
  record.mutable_end()->set_reason(v1::RECORD_END_REASON_SESSION_ENDED);
  return record;
}

// A file of these records, and where each ends.
std::string FileOf(const std::vector<v1::SessionRecord>& records,
                   std::vector<size_t>* ends = nullptr) {
  std::string file = RecordFirstLine();
  for (const v1::SessionRecord& record : records) {
    AppendFramed(record.SerializeAsString(), &file);
    if (ends != nullptr) ends->push_back(file.size());
  }
  return file;
}

TEST(Crc32c, HasThePublishedCheckValue) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Recording, IsReadAsItWasWritten) {
  const auto recording = ParseRecording("f", FileOf({Header(), Step(1), Step(2), End()}));
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ(recording->header.session(), 7u);
  ASSERT_EQ(recording->calls.size(), 2u);
  EXPECT_EQ(recording->calls[1].SerializeAsString(), Step(2).SerializeAsString());
  EXPECT_EQ(recording->end, v1::RECORD_END_REASON_SESSION_ENDED);
  EXPECT_EQ(recording->bytes_cut_off, 0u);
}

TEST(Recording, IsReadUpToItsLastWholeRecordWhereverItIsCutOff) {
  std::vector<size_t> ends;
  const std::string file = FileOf({Header(), Step(1), Step(2), Step(3), End()}, &ends);
  for (size_t size = 1; size < file.size(); ++size) {
    const auto recording = ParseRecording("f", file.substr(0, size));
    if (size < ends[0]) {
      EXPECT_EQ(recording.status().code(), absl::StatusCode::kOutOfRange) << size;
      EXPECT_THAT(std::string(recording.status().message()), HasSubstr("cut off in its")) << size;
      continue;
    }
    ASSERT_TRUE(recording.ok()) << size << ": " << recording.status();
    size_t whole = 0;
    while (ends[whole + 1] <= size) ++whole;
    EXPECT_EQ(recording->calls.size(), whole) << size;
    EXPECT_FALSE(recording->end) << size;
    EXPECT_EQ(recording->bytes_cut_off, size - ends[whole]) << size;
  }
}

TEST(Recording, IsRefusedWhereAnyBitHasChanged) {
  const std::string file = FileOf({Header(), Step(1), End()});
  for (size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string changed = file;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ParseRecording("f", changed).ok()) << "bit " << bit;
  }
}

TEST(Recording, SaysWhichRecordIsDamaged) {
  std::vector<size_t> ends;
  std::string file = FileOf({Header(), Step(1), Step(2), End()}, &ends);
  file[ends[1] + kFrameHeadBytes] ^= 1;
  const absl::Status status = ParseRecording("f.record", file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            absl::StrCat("f.record: record 3, at byte ", ends[1], ": its checksum is wrong"));
}

TEST(Recording, OfAnotherVersionIsRefused) {
  std::string file = FileOf({Header(), End()});
  file.replace(0, RecordFirstLine().size(), "reprise-record 3\n");
  const absl::Status status = ParseRecording("f", file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "f: version of the recording: got 3, allowed: 1 to 2");
}

TEST(Recording, OfTheVersionBeforeIsRead) {
  std::string file = FileOf({Header(), Step(1), End()});
  file.replace(0, RecordFirstLine().size(), "reprise-record 1\n");
  const auto recording = ParseRecording("f", file);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ(recording->calls.size(), 1u);
  EXPECT_EQ(recording->end, v1::RECORD_END_REASON_SESSION_ENDED);
  for (const char* cut_off : {"reprise-record", "reprise-record 1", "reprise-record 2"})
    EXPECT_EQ(ParseRecording("f", cut_off).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Recording, IsNothingElse) {
  EXPECT_THAT(std::string(ParseRecording("f", "").status().message()), HasSubstr("an empty file"));
  EXPECT_EQ(ParseRecording("f", "").status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ParseRecording("f", "{\"json\": 1}\n").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadRecording("/no/such.record").status().code(), absl::StatusCode::kNotFound);
}

TEST(Recording, HasOneHeaderAndNothingBehindItsEnd) {
  const auto refusal = [](const std::vector<v1::SessionRecord>& records) {
    return std::string(ParseRecording("f", FileOf(records)).status().message());
  };
  EXPECT_THAT(refusal({Step(1)}), HasSubstr("record 1, at byte 17: is no header"));
  EXPECT_THAT(refusal({Header(), Header()}), HasSubstr("is a second header"));
  EXPECT_THAT(refusal({Header(), End(), Step(1)}), HasSubstr("stands behind the end"));
  EXPECT_THAT(refusal({Header(), v1::SessionRecord()}), HasSubstr("is no call"));
}

TEST(ConfigSha256, IsThatOfTheFile) {
  const testing::TemporaryDirectory directory;
  std::ofstream(directory.path() + "/config.json") << "abc";
  const auto digest = ConfigSha256({.directory = directory.path()});
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(digest->substr(0, 4), "\xba\x78\x16\xbf");  // of "abc", FIPS 180-2
  EXPECT_EQ(*ConfigSha256({.preset = "llama-3.1-8b"}), "");
}

}  // namespace
}  // namespace reprise::service
