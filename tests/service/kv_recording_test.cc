// SPDX-License-Identifier: Apache-2.0
// Recordings of sessions with calls about KV blocks: they go on across them, and hold what came
// into blocks without passing through the client.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "service/clock.h"
#include "service/kv/kv_wire.h"
#include "service/record/kv_records.h"
#include "service/record/record_format.h"
#include "service/record/recorder.h"
#include "tests/service/kv_client.h"
#include "tests/service/served_model.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Two full blocks.
const std::vector<uint32_t> kSystem = {5, 80, 33, 12, 96, 7, 41, 2};

class RecordedKv : public ::testing::Test {
 protected:
  void Start(ServedModel::Options options = {}) {
    options.server.record = record_;
    options.server.record.directory = directory_;
    options.server.report = [this](const std::string& what) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(what);
    };
    served_ = std::make_unique<ServedModel>(options);
  }
  // The server is gone then: recordings in the order of their sessions.
  std::vector<Recording> Stop() {
    served_->StopServer();
    std::vector<Recording> recordings;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      auto recording = ReadRecording(entry.path());
      EXPECT_TRUE(recording.ok()) << recording.status();
      if (recording.ok()) recordings.push_back(*std::move(recording));
    }
    std::ranges::sort(recordings, {}, [](const Recording& r) { return r.header.session(); });
    return recordings;
  }
  std::vector<std::string> Reports() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  // What its records are of, in order of time.
  static std::vector<std::string> Kinds(Recording recording) {
    std::ranges::stable_sort(recording.calls, {}, &v1::SessionRecord::time_ns);
    std::vector<std::string> kinds;
    for (const v1::SessionRecord& call : recording.calls) {
      kinds.push_back(call.has_step()             ? "step"
                      : call.has_allocate()       ? "allocate"
                      : call.has_free()           ? "free"
                      : call.has_write()          ? "write"
                      : call.has_swap_out()       ? "swap_out"
                      : call.has_swap_in()        ? "swap_in"
                      : call.has_free_swapped()   ? "free_swapped"
                      : call.has_share()          ? "share"
                      : call.has_adopted()        ? "adopted"
                      : call.has_release()        ? "release"
                      : call.has_swap_out_state() ? "swap_out_state"
                                                  : "nothing");
    }
    return kinds;
  }
  static const v1::SessionRecord& First(const Recording& recording,
                                        bool (v1::SessionRecord::*has)() const) {
    for (const v1::SessionRecord& call : recording.calls)
      if ((call.*has)()) return call;
    ADD_FAILURE() << "no such record";
    return v1::SessionRecord::default_instance();
  }

  testing::TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path() + "/recordings";
  RecordOptions record_;
  std::mutex mutex_;
  std::vector<std::string> reports_;
  std::unique_ptr<ServedModel> served_;
};

TEST_F(RecordedKv, HoldsWhatWentToSwapSpaceAndCameBack) {
  ServedModel::Options options;
  options.swap_bytes = 64 << 10;
  Start(options);
  std::vector<uint32_t> blocks;
  v1::SwapOutResponse out, lost;
  v1::SwapInResponse in;
  {
    StreamClient client(served_->NewChannel());
    blocks = Filled(client, kSystem);
    const std::vector<uint32_t> other = client.Allocate(1);
    ASSERT_TRUE(SwapOut(client, blocks, &out).ok());
    ASSERT_TRUE(SwapOut(client, other, &lost).ok());
    ASSERT_TRUE(SwapIn(client, {out.swapped(1), out.swapped(0)}, &in).ok());
    ASSERT_TRUE(FreeSwapped(client, {lost.swapped(0)}).ok());
    // Refused calls change nothing.
    EXPECT_FALSE(SwapOut(client, {9999}, &lost).ok());
    EXPECT_TRUE(client.Finish().ok());
  }
  const std::vector<Recording> recordings = Stop();
  ASSERT_EQ(recordings.size(), 1u);
  const Recording& recording = recordings[0];
  EXPECT_EQ(recording.end, v1::RECORD_END_REASON_SESSION_ENDED);
  EXPECT_THAT(Kinds(recording), ElementsAre("allocate", "step", "step", "allocate", "swap_out",
                                            "swap_out", "swap_in", "free_swapped"));
  const v1::SessionRecord& gone = First(recording, &v1::SessionRecord::has_swap_out);
  EXPECT_TRUE(gone.swap_out().session().empty());
  EXPECT_THAT(gone.swap_out().blocks(), ElementsAreArray(blocks));
  EXPECT_THAT(gone.swapped_out().swapped(), ElementsAreArray(out.swapped()));
  const v1::SessionRecord& back = First(recording, &v1::SessionRecord::has_swap_in);
  EXPECT_THAT(back.swap_in().swapped(), ElementsAre(out.swapped(1), out.swapped(0)));
  EXPECT_THAT(back.swapped_in().blocks(), ElementsAreArray(in.blocks()));
  EXPECT_TRUE(Reports().empty());
}

TEST_F(RecordedKv, HoldsContentsThatTheClientWrote) {
  Start();
  v1::WriteBlocksRequest write;
  std::string token;
  {
    StreamClient client(served_->NewChannel());
    token = client.session();
    const std::vector<uint32_t> blocks = Filled(client, {5, 80, 33, 12, 96});
    v1::ReadBlocksResponse read;
    ASSERT_TRUE(Read(client, blocks, &read).ok());
    write = WriteOf(read, client.Allocate(2));
    ASSERT_TRUE(Write(client, write).ok());
    v1::WriteBlocksRequest wrong = write;
    wrong.mutable_parts(0)->set_crc32(1);
    EXPECT_FALSE(Write(client, wrong).ok());
    EXPECT_TRUE(client.Finish().ok());
  }
  const std::vector<Recording> recordings = Stop();
  ASSERT_EQ(recordings.size(), 1u);
  EXPECT_THAT(Kinds(recordings[0]), ElementsAre("allocate", "step", "step", "allocate", "write"));
  EXPECT_EQ(First(recordings[0], &v1::SessionRecord::has_write).write().SerializeAsString(),
            write.SerializeAsString())
      << "without the session's token";
}

TEST_F(RecordedKv, HoldsContentsThatWereAdopted) {
  Start();
  v1::ReadBlocksResponse read;
  std::vector<uint32_t> blocks;
  {
    StreamClient first(served_->NewChannel()), second(served_->NewChannel());
    blocks = Filled(first, kSystem);
    ASSERT_TRUE(Share(first, "a name", blocks).ok());
    std::vector<uint32_t> adopted;
    ASSERT_TRUE(Adopt(first, "a name", &adopted).ok()) << "its own: nothing changes";
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(Adopt(second, "a name", &adopted).ok());
      EXPECT_EQ(adopted, blocks);
    }
    ASSERT_TRUE(Read(second, blocks, &read).ok());
    EXPECT_FALSE(Adopt(second, "another", &adopted).ok());
    ASSERT_TRUE(Release(second, "a name").ok());
    EXPECT_FALSE(Release(second, "a name").ok());
    EXPECT_TRUE(first.Finish().ok());
    EXPECT_TRUE(second.Finish().ok());
  }
  const std::vector<Recording> recordings = Stop();
  ASSERT_EQ(recordings.size(), 2u);
  EXPECT_THAT(Kinds(recordings[0]), ElementsAre("allocate", "step", "step", "share"));
  const Recording& recording = recordings[1];
  EXPECT_EQ(recording.end, v1::RECORD_END_REASON_SESSION_ENDED);
  ASSERT_THAT(Kinds(recording), ElementsAre("adopted", "write", "share", "release"));
  EXPECT_THAT(recording.calls[0].adopted().blocks(), ElementsAreArray(blocks));
  const v1::WriteBlocksRequest& write = recording.calls[1].write();
  EXPECT_EQ(write.layout().SerializeAsString(), read.layout().SerializeAsString());
  ASSERT_EQ(write.parts_size(), 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(write.parts(i).SerializeAsString(), read.parts(i).SerializeAsString());
  EXPECT_EQ(recording.calls[2].share().name(), SharedNameDigest("a name"));
  EXPECT_EQ(recording.calls[3].release().name(), SharedNameDigest("a name"));
  EXPECT_EQ(recording.calls[0].time_ns(), recording.calls[2].time_ns());
}

TEST_F(RecordedKv, HoldsContentsThatWereAdoptedFromAServerThatDoesNotKnowItsModel) {
  ServedModel::Options options;
  options.knows_model = false;
  Start(options);
  {
    StreamClient first(served_->NewChannel()), second(served_->NewChannel());
    ASSERT_TRUE(Share(first, "a name", Filled(first, kSystem)).ok());
    std::vector<uint32_t> adopted;
    ASSERT_TRUE(Adopt(second, "a name", &adopted).ok());
    EXPECT_TRUE(first.Finish().ok());
    EXPECT_TRUE(second.Finish().ok());
  }
  const std::vector<Recording> recordings = Stop();
  ASSERT_EQ(recordings.size(), 2u);
  EXPECT_THAT(Kinds(recordings[1]), ElementsAre("adopted", "write", "share"));
}

TEST_F(RecordedKv, HoldsContentsThatWereImported) {
  ASSERT_EQ(chmod(temporary_.path().c_str(), 0700), 0);
  ServedModel::Options exporting;
  exporting.export_bytes = 64 << 10;
  exporting.kv_exchange = temporary_.path();
  ServedModel prefill(exporting);
  ServedModel::Options importing;
  importing.kv_exchange = temporary_.path();
  Start(importing);
  v1::ReadBlocksResponse read;
  {
    StreamClient there(prefill.NewChannel()), here(served_->NewChannel());
    std::vector<std::string> tickets;
    ASSERT_TRUE(Export(there, Filled(there, {5, 80, 33, 12, 96}), &tickets).ok());
    here.Allocate(3);  // other ids than there
    const std::vector<uint32_t> own = here.Allocate(2);
    std::vector<uint32_t> num_tokens;
    const grpc::Status imported = Import(here, own, tickets, &num_tokens);
    ASSERT_TRUE(imported.ok()) << imported.error_message();
    EXPECT_THAT(num_tokens, ElementsAre(4u, 1u));
    ASSERT_TRUE(Read(here, own, &read).ok());
    EXPECT_TRUE(here.Finish().ok());
  }
  const std::vector<Recording> recordings = Stop();
  ASSERT_EQ(recordings.size(), 1u);
  EXPECT_EQ(recordings[0].end, v1::RECORD_END_REASON_SESSION_ENDED);
  ASSERT_THAT(Kinds(recordings[0]), ElementsAre("allocate", "allocate", "write"));
  const v1::WriteBlocksRequest& write = First(recordings[0], &v1::SessionRecord::has_write).write();
  ASSERT_EQ(write.parts_size(), 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(write.parts(i).SerializeAsString(), read.parts(i).SerializeAsString());
}

// The client is answered as ever; the file says why it ends.
TEST_F(RecordedKv, EndsWhereContentsDoNotFitTheLimit) {
  record_.limit_bytes = 16'000;
  Start();
  constexpr int kTimes = 12;  // of more than 2,000 bytes each
  {
    StreamClient first(served_->NewChannel()), second(served_->NewChannel());
    const std::vector<uint32_t> blocks = Filled(first, kSystem);
    ASSERT_TRUE(Share(first, "a name", blocks).ok());
    for (int i = 0; i < kTimes; ++i) {
      std::vector<uint32_t> adopted;
      ASSERT_TRUE(Adopt(second, "a name", &adopted).ok());
      EXPECT_EQ(adopted, blocks);
      ASSERT_TRUE(Release(second, "a name").ok());
    }
    EXPECT_TRUE(Eventually([&] { return !Reports().empty(); }));
    EXPECT_TRUE(second.Finish().ok());
    EXPECT_TRUE(first.Finish().ok());
  }
  const std::vector<Recording> recordings = Stop();
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("--record-limit")));
  ASSERT_EQ(recordings.size(), 2u);
  EXPECT_EQ(recordings[0].end, v1::RECORD_END_REASON_SESSION_ENDED);
  EXPECT_EQ(recordings[1].end, v1::RECORD_END_REASON_LIMIT);
  const std::vector<std::string> kinds = Kinds(recordings[1]);
  EXPECT_GT(std::ranges::count(kinds, "write"), 0);
  EXPECT_LT(std::ranges::count(kinds, "write"), kTimes);
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_))
    bytes += entry.file_size();
  EXPECT_LE(bytes, record_.limit_bytes);
}

// One block's contents.
v1::WriteBlocksRequest WriteOf(const engine::KvShape& shape) {
  v1::WriteBlocksRequest write;
  KvLayoutToWire(shape, "", write.mutable_layout());
  v1::KvPart* part = write.add_parts();
  part->set_block(1);
  part->set_num_layers(1);
  part->set_num_tokens(kBlockSize);
  part->set_contents(std::string(shape.BytesOf({.num_layers = 1, .num_tokens = kBlockSize}), 'k'));
  part->set_crc32(Crc32Of(*part));
  return write;
}

// More than the queue holds at a time: it is waited for, in the thread of such calls.
TEST_F(RecordedKv, ContentsWaitForRoomInTheQueue) {
  served_ = std::make_unique<ServedModel>();
  record_.directory = directory_;
  record_.max_waiting_bytes = 64 << 10;
  record_.write_interval_ms = 1;
  auto recorder = Recorder::Open(record_, {});
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  auto recording = (*recorder)->Begin(served_->engine(), 1, "test");
  ASSERT_NE(recording, nullptr);
  v1::WriteBlocksRequest write = WriteOf(served_->engine().info().kv);
  write.set_session("secret");
  for (int i = 0; i < 40; ++i) *write.add_parts() = write.parts(0);
  constexpr size_t kWrites = 40;
  for (size_t i = 0; i < kWrites; ++i) recording->AddWrite(NowNs(), &write);
  EXPECT_TRUE(write.session().empty());
  EXPECT_GT(kWrites * write.ByteSizeLong(), 4 * record_.max_waiting_bytes);
  EXPECT_TRUE(recording->HasRoomFor(1000));
  EXPECT_FALSE(recording->HasRoomFor(record_.limit_bytes));
  recording.reset();
  recorder->reset();
  const std::filesystem::directory_iterator file(directory_);
  const auto read = ReadRecording(file->path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->calls.size(), kWrites);
  EXPECT_EQ(read->end, v1::RECORD_END_REASON_LIMIT) << "what was asked for last does not fit";
}

// All contents that came at one time wait for 5 s together: a disk that is slow holds up the thread
// of such calls no longer.
TEST_F(RecordedKv, ContentsThatFindNoRoomInTimeEndTheRecording) {
  served_ = std::make_unique<ServedModel>();
  record_.directory = directory_;
  record_.max_waiting_bytes = 64 << 10;
  record_.write_interval_ms = 60'000;
  auto recorder = Recorder::Open(record_, {});
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  auto recording = (*recorder)->Begin(served_->engine(), 1, "test");
  ASSERT_NE(recording, nullptr);
  v1::WriteBlocksRequest write = WriteOf(served_->engine().info().kv);
  const uint64_t long_ago_ns = NowNs() - 60'000'000'000;
  size_t writes = 0;
  for (; recording->goes_on(); ++writes) {
    ASSERT_LT(writes, record_.max_waiting_bytes);
    recording->AddWrite(long_ago_ns, &write);
  }
  EXPECT_GT(writes, 1u);
  EXPECT_LE((writes - 1) * write.ByteSizeLong(), record_.max_waiting_bytes / 2)
      << "the other half is for steps";
  recording.reset();
  recorder->reset();
  const std::filesystem::directory_iterator file(directory_);
  const auto read = ReadRecording(file->path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->end, v1::RECORD_END_REASON_OVERFLOW);
}

}  // namespace
}  // namespace reprise::service
