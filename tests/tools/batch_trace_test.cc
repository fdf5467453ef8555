// SPDX-License-Identifier: Apache-2.0
// Traces of step sizes: from files of numbers, and from what sessions recorded.
#include "tools/advise/batch_trace.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class BatchTraceFile : public ::testing::Test {
 protected:
  absl::StatusOr<BatchTrace> Read(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
    return ReadBatchTrace({path_});
  }
  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/steps";
};

TEST_F(BatchTraceFile, IsCsvOrLinesOfJson) {
  const auto csv = Read("steps,rows,tokens,context\n20,4,131,512.5\n,3,,64\n");
  const auto json = Read(
      "{\"rows\": 4, \"tokens\": 131, \"context\": 512.5, \"steps\": 20}\n"
      "{\"rows\": 3, \"context\": 64}\n");
  for (const auto& trace : {csv, json}) {
    ASSERT_OK(trace.status());
    ASSERT_THAT(trace->steps, SizeIs(2));
    EXPECT_EQ(trace->steps[0].tokens, 131);
    EXPECT_EQ(trace->steps[0].context, 512.5);
    EXPECT_EQ(trace->steps[0].weight, 20);
    EXPECT_FALSE(trace->steps[0].is_decode());
    EXPECT_EQ(trace->steps[1].rows, 3);
    EXPECT_EQ(trace->steps[1].weight, 1);
    EXPECT_TRUE(trace->steps[1].is_decode());
    EXPECT_FALSE(trace->graphs.has_value());
  }
}

TEST_F(BatchTraceFile, IsRefusedByWhatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "got no step, allowed: CSV or lines of JSON with rows, tokens, context, steps"},
      {"rows\n0\n", ":2: rows: got \"0\", allowed: a whole number from 1"},
      {"tokens\n4\n", ":2: got no rows"},
      {"rows,tokens\n1,1\n4,3\n", "record 2: tokens: got 3, allowed: 4 or more"},
      {"rows,when\n", "got the field \"when\""}};
  for (const auto& [text, message] : wrong) {
    EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kInvalidArgument, message)) << text;
  }
  EXPECT_EQ(ReadBatchTrace({path_ + ".not"}).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path_, std::ios::trunc) << "reprise-record 1\n";
  EXPECT_EQ(ReadBatchTrace({path_}).status().code(), absl::StatusCode::kOutOfRange);
}

service::Recording Recorded(std::initializer_list<uint32_t> decode_buckets) {
  service::Recording recording;
  recording.name = "a.record";
  for (const uint32_t capacity : decode_buckets) {
    v1::Bucket* bucket = recording.header.mutable_server()->add_buckets();
    bucket->set_kind("decode");
    bucket->set_capacity(capacity);
    bucket->set_device_bytes(100 * capacity);
  }
  v1::Bucket* bucket = recording.header.mutable_server()->add_buckets();
  bucket->set_kind("mixed");
  bucket->set_capacity(64);
  return recording;
}

v1::StepResponse* AddAnswer(service::Recording* recording) {
  v1::SessionRecord& call = recording->calls.emplace_back();
  call.mutable_step();
  return call.mutable_answer();
}

void SetReport(v1::StepReport* report, uint32_t rows, uint32_t tokens, uint32_t other_rows = 0) {
  report->set_replayed(true);
  report->set_rows(rows);
  report->set_tokens(tokens);
  report->set_other_rows(other_rows);
  report->set_other_tokens(other_rows);
}

void AddRow(v1::StepResponse* answer, uint32_t context, v1::RowStatus status) {
  answer->mutable_rows()->add_row(1);
  answer->mutable_rows()->add_status(status);
  answer->mutable_rows()->add_context_length(context);
}

// As a server writes it, of one step of three rows.
std::string RecordedBytes() {
  service::Recording recording = Recorded({1, 4});
  SetReport(AddAnswer(&recording)->mutable_report(), 3, 3);
  v1::SessionRecord header;
  *header.mutable_header() = recording.header;
  std::string bytes = service::RecordFirstLine();
  service::AppendFramed(header.SerializeAsString(), &bytes);
  service::AppendFramed(recording.calls[0].SerializeAsString(), &bytes);
  return bytes;
}

// What a trace that is read from a named pipe comes to, into which a thread writes `bytes`.
absl::StatusOr<BatchTrace> ReadFromPipe(const std::string& pipe, const std::string& bytes) {
  EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe, std::ios::binary) << bytes; });
  absl::StatusOr<BatchTrace> trace = ReadBatchTrace({pipe});
  // Lets a writer go whom nobody has read.
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  writer.join();
  ::close(reader);
  return trace;
}

TEST_F(BatchTraceFile, MayBeAPipe) {
  ASSERT_OK_AND_ASSIGN(const BatchTrace numbers,
                       ReadFromPipe(path_ + ".numbers", "rows,tokens\n4,131\n3,3\n"));
  ASSERT_THAT(numbers.steps, SizeIs(2));
  EXPECT_EQ(numbers.steps[0].tokens, 131);
  ASSERT_OK_AND_ASSIGN(const BatchTrace recorded,
                       ReadFromPipe(path_ + ".recording", RecordedBytes()));
  ASSERT_THAT(recorded.steps, SizeIs(1));
  EXPECT_EQ(recorded.steps[0].rows, 3);
  EXPECT_THAT(recorded.graphs->decode, ElementsAre(1, 4));
}

TEST_F(BatchTraceFile, WithoutAWholeHeaderIsSkippedAmongOthers) {
  const std::string whole = RecordedBytes();
  const std::string good = path_ + ".good", empty = path_ + ".empty", cut = path_ + ".cut";
  std::ofstream(good, std::ios::binary) << whole;
  std::ofstream(empty).close();
  for (const size_t bytes : {size_t{1}, size_t{9}, size_t{20}}) {
    std::ofstream(cut, std::ios::binary | std::ios::trunc) << whole.substr(0, bytes);
    ASSERT_OK_AND_ASSIGN(const BatchTrace trace, ReadBatchTrace({empty, good, cut}));
    EXPECT_THAT(trace.steps, SizeIs(1));
    ASSERT_THAT(trace.skipped, SizeIs(2));
    EXPECT_EQ(trace.skipped[0].file, empty);
    EXPECT_THAT(trace.skipped[0].why, HasSubstr(empty + ": got an empty file"));
    EXPECT_EQ(trace.skipped[1].file, cut);
    EXPECT_THAT(trace.skipped[1].why, HasSubstr(cut + ": was cut off in its "));
  }
  EXPECT_THAT(ReadBatchTrace({cut}),
              StatusIs(absl::StatusCode::kOutOfRange, "was cut off in its header"));
  EXPECT_THAT(ReadBatchTrace({empty}),
              StatusIs(absl::StatusCode::kInvalidArgument, "got no step, allowed: CSV"));
  EXPECT_THAT(ReadBatchTrace({empty, cut}),
              StatusIs(absl::StatusCode::kInvalidArgument, "skipped: " + cut + ": was cut off"));
  // Damage is no end that came too early.
  std::string damaged = whole;
  damaged[whole.size() - 1] ^= 1;
  std::ofstream(cut, std::ios::binary | std::ios::trunc) << damaged;
  EXPECT_EQ(ReadBatchTrace({good, cut}).status().code(), absl::StatusCode::kDataLoss);
}

TEST(BatchTrace, OfARecordingCountsEachReplayOnce) {
  service::Recording recording = Recorded({1, 3});
  v1::StepResponse* alone = AddAnswer(&recording);
  SetReport(alone->mutable_report(), 2, 9);
  AddRow(alone, 10, v1::ROW_STATUS_RAN);
  AddRow(alone, 20, v1::ROW_STATUS_RAN);
  AddRow(alone, 99, v1::ROW_STATUS_STOPPED);
  SetReport(AddAnswer(&recording)->mutable_report(), 1, 1, /*other_rows=*/3);
  SetReport(AddAnswer(&recording)->mutable_report(), 0, 0, /*other_rows=*/3);
  SetReport(AddAnswer(&recording)->mutable_report(), 0, 0);
  AddAnswer(&recording)->mutable_report()->set_replayed(false);
  recording.calls.emplace_back().mutable_allocate();
  BatchTrace trace;
  EXPECT_OK(AddRecording(recording, &trace));
  ASSERT_THAT(trace.steps, SizeIs(3));
  EXPECT_EQ(trace.steps[0].tokens, 9);
  EXPECT_EQ(trace.steps[0].context, 15);
  EXPECT_EQ(trace.steps[1].rows, 4);
  EXPECT_EQ(trace.steps[1].weight, 0.25);
  EXPECT_EQ(trace.steps[1].context, 0);
  EXPECT_EQ(trace.steps[2].rows, 0);
  EXPECT_EQ(trace.num_eager, 1u);
  ASSERT_TRUE(trace.graphs.has_value());
  EXPECT_THAT(trace.graphs->decode, ElementsAre(1, 3));
  EXPECT_THAT(trace.graphs->mixed, ElementsAre(64));
  EXPECT_EQ(trace.graphs->decode_bytes, 200);
  EXPECT_EQ(trace.graphs->mixed_bytes, 0);
}

TEST(BatchTrace, LeavesOutCallsAboutBlocks) {
  service::Recording recording = Recorded({4});
  recording.calls.emplace_back().mutable_write()->add_parts()->set_contents("k");
  recording.calls.emplace_back().mutable_swap_out()->add_blocks(1);
  SetReport(AddAnswer(&recording)->mutable_report(), 3, 3);
  recording.calls.emplace_back().mutable_adopted()->add_blocks(1);
  BatchTrace trace;
  ASSERT_OK(AddRecording(recording, &trace));
  ASSERT_THAT(trace.steps, SizeIs(1));
  EXPECT_EQ(trace.steps[0].rows, 3);
}

TEST(BatchTrace, HasEveryStepOfARequest) {
  service::Recording recording = Recorded({8});
  v1::StepResponse* answer = AddAnswer(&recording);
  SetReport(answer->mutable_report(), 2, 2);
  for (const uint32_t rows : {2u, 1u}) {
    v1::SingleStep* step = answer->add_steps();
    step->set_num_rows(2);
    SetReport(step->mutable_report(), rows, rows);
  }
  for (const uint32_t context : {10u, 20u, 11u}) AddRow(answer, context, v1::ROW_STATUS_RAN);
  AddRow(answer, 20, v1::ROW_STATUS_STOPPED);
  BatchTrace trace;
  EXPECT_OK(AddRecording(recording, &trace));
  ASSERT_THAT(trace.steps, SizeIs(2));
  EXPECT_EQ(trace.steps[0].context, 15);
  EXPECT_EQ(trace.steps[1].rows, 1);
  EXPECT_EQ(trace.steps[1].context, 11);
}

TEST(BatchTrace, RefusesResultsThatDoNotGoTogether) {
  const auto refuses = [](const service::Recording& recording) {
    BatchTrace trace;
    EXPECT_THAT(AddRecording(recording, &trace),
                StatusIs(absl::StatusCode::kDataLoss, "step 7 has columns that do not agree"));
  };
  service::Recording no_status = Recorded({8});
  v1::StepResponse* answer = AddAnswer(&no_status);
  answer->set_sequence(7);
  AddRow(answer, 10, v1::ROW_STATUS_RAN);
  answer->mutable_rows()->clear_status();
  refuses(no_status);
  service::Recording more_rows = Recorded({8});
  answer = AddAnswer(&more_rows);
  answer->set_sequence(7);
  AddRow(answer, 10, v1::ROW_STATUS_RAN);
  answer->add_steps()->set_num_rows(2147483648u);
  refuses(more_rows);
}

TEST(BatchTrace, SaysWhereServersHadOtherBuckets) {
  BatchTrace trace;
  EXPECT_OK(AddRecording(Recorded({1, 8}), &trace));
  EXPECT_OK(AddRecording(Recorded({8, 1}), &trace));
  EXPECT_OK(trace.differing_graphs);
  service::Recording other = Recorded({1, 4});
  SetReport(AddAnswer(&other)->mutable_report(), 3, 3);
  EXPECT_OK(AddRecording(other, &trace));
  EXPECT_OK(AddRecording(Recorded({1, 2}), &trace));
  EXPECT_THAT(trace.differing_graphs,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "a.record: decode and mixed buckets: got 1,4 and 64, allowed: 1,8 and 64"));
  // Its steps count all the same.
  EXPECT_THAT(trace.steps, SizeIs(1));
  EXPECT_THAT(trace.graphs->decode, ElementsAre(1, 8));
}

}  // namespace
}  // namespace reprise::tools
