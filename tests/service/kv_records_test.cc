// SPDX-License-Identifier: Apache-2.0
// Records of calls about KV blocks in files: read as they were written, and refused by what is
// wrong with them.
#include "service/record/kv_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "service/kv/kv_wire.h"
#include "service/record/record_format.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kNumBlocks = 8;  // with the scratch block
constexpr uint32_t kNumPlaces = 5;
constexpr uint32_t kNumStates = 2;
constexpr uint32_t kTokens = 4;  // of a block

v1::SessionRecord Header() {
  v1::SessionRecord record;
  v1::Pool* pool = record.mutable_header()->mutable_server()->mutable_pool();
  pool->set_block_size(kTokens);
  pool->set_num_blocks(kNumBlocks);
  pool->set_swap_blocks(kNumPlaces);
  pool->set_swap_states(kNumStates);
  return record;
}

v1::SessionRecord Written() {
  v1::SessionRecord record;
  v1::WriteBlocksRequest* write = record.mutable_write();
  write->mutable_layout()->set_num_layers(2);
  write->mutable_layout()->set_num_kv_heads(3);
  write->mutable_layout()->set_head_dim(8);
  write->mutable_layout()->set_block_size(kTokens);
  write->mutable_layout()->set_dtype("bf16");
  v1::KvPart* part = write->add_parts();
  part->set_block(7);
  part->set_first_layer(1);
  part->set_num_layers(1);
  part->set_num_tokens(3);
  part->set_contents(std::string(2 * 3 * 3 * 8 * 2, 'k'));
  part->set_crc32(Crc32Of(*part));
  return record;
}

v1::SessionRecord SwappedOut() {
  v1::SessionRecord record;
  for (const uint32_t block : {1u, 7u}) record.mutable_swap_out()->add_blocks(block);
  for (const uint32_t place : {0u, 4u}) record.mutable_swapped_out()->add_swapped(place);
  return record;
}

v1::SessionRecord SwappedIn() {
  v1::SessionRecord record;
  record.mutable_swap_in()->add_swapped(4);
  record.mutable_swapped_in()->add_blocks(3);
  return record;
}

v1::SessionRecord StateSwappedOut() {
  v1::SessionRecord record;
  record.mutable_swap_out_state()->set_row(17);
  record.mutable_swapped_out_state()->set_swapped_state(1);
  return record;
}

v1::SessionRecord SwappedFreed() {
  v1::SessionRecord record;
  record.mutable_free_swapped()->add_swapped(0);
  record.mutable_free_swapped()->add_swapped_states(1);
  return record;
}

v1::SessionRecord Adopted() {
  v1::SessionRecord record;
  record.mutable_adopted()->add_blocks(7);
  return record;
}

v1::SessionRecord SharedAs(const std::string& name) {
  v1::SessionRecord record;
  record.mutable_share()->set_name(SharedNameDigest(name));
  record.mutable_share()->add_blocks(7);
  return record;
}

v1::SessionRecord Released() {
  v1::SessionRecord record;
  record.mutable_release()->set_name(SharedNameDigest("x"));
  return record;
}

std::string FileOf(const std::vector<v1::SessionRecord>& records, uint32_t version = 2) {
  std::string file = RecordFirstLine(version);
  for (const v1::SessionRecord& record : records) AppendFramed(record.SerializeAsString(), &file);
  return file;
}

TEST(KvRecords, AreReadAsTheyWereWritten) {
  const std::vector<v1::SessionRecord> records = {Header(),    Written(),         SwappedOut(),
                                                  SwappedIn(), StateSwappedOut(), SwappedFreed(),
                                                  Adopted(),   SharedAs("x"),     Released()};
  const auto recording = ParseRecording("f", FileOf(records));
  ASSERT_TRUE(recording.ok()) << recording.status();
  ASSERT_EQ(recording->calls.size(), records.size() - 1);
  for (size_t i = 1; i < records.size(); ++i)
    EXPECT_EQ(recording->calls[i - 1].SerializeAsString(), records[i].SerializeAsString()) << i;
}

TEST(KvRecords, AreCutOffLikeOthers) {
  const std::string whole = FileOf({Header()});
  const std::string file = FileOf({Header(), Written()});
  for (size_t size = whole.size(); size < file.size(); ++size) {
    const auto recording = ParseRecording("f", file.substr(0, size));
    ASSERT_TRUE(recording.ok()) << recording.status();
    EXPECT_TRUE(recording->calls.empty());
    EXPECT_EQ(recording->bytes_cut_off, size - whole.size());
  }
}

using Change = std::function<void(v1::SessionRecord*)>;

v1::SessionRecord With(v1::SessionRecord record, const Change& change) {
  change(&record);
  return record;
}

// Contents that belong to what is said of them otherwise.
v1::SessionRecord WithPart(const std::function<void(v1::KvPart*)>& change) {
  return With(Written(), [&](v1::SessionRecord* record) {
    v1::KvPart* part = record->mutable_write()->mutable_parts(0);
    change(part);
    part->set_crc32(Crc32Of(*part));
  });
}

TEST(KvRecords, AreRefusedByWhatIsWrong) {
  using Record = v1::SessionRecord;
  const std::pair<Record, const char*> wrong[] = {
      {With(SwappedOut(), [](Record* r) { r->mutable_swap_out()->add_blocks(2); }),
       "swap_out: got 3 blocks and 2 swapped blocks, allowed: one for each"},
      {With(SwappedOut(), [](Record* r) { r->mutable_swap_out()->set_blocks(1, kNumBlocks); }),
       "swap_out: got block 8, allowed: 1 to 7, those of the recorded pool"},
      {With(SwappedOut(), [](Record* r) { r->mutable_swap_out()->set_blocks(0, 0); }),
       "swap_out: got block 0, allowed: 1 to 7"},
      {With(SwappedOut(), [](Record* r) { r->mutable_swapped_out()->set_swapped(0, kNumPlaces); }),
       "swap_out: got swapped block 5, allowed: 0 to 4, those of the recorded swap space"},
      {With(SwappedOut(),
            [](Record* r) {
              r->mutable_swap_out()->clear_blocks();
              r->clear_swapped_out();
            }),
       "swap_out: got no block, allowed: one or more"},
      {With(SwappedIn(), [](Record* r) { r->clear_swapped_in(); }),
       "swap_in: got 0 blocks and 1 swapped blocks"},
      {With(SwappedIn(), [](Record* r) { r->mutable_swap_in()->set_swapped(0, 99); }),
       "swap_in: got swapped block 99, allowed: 0 to 4"},
      {With(StateSwappedOut(),
            [](Record* r) { r->mutable_swapped_out_state()->set_swapped_state(2); }),
       "swap_out_state: got swapped state 2, allowed: 0 to 1"},
      {With(StateSwappedOut(), [](Record* r) { r->clear_swapped_out_state(); }),
       "swap_out_state: got no answer, allowed one"},
      {With(SwappedFreed(), [](Record* r) { r->mutable_free_swapped()->add_swapped_states(2); }),
       "free_swapped: got swapped state 2, allowed: 0 to 1"},
      {With(SwappedFreed(), [](Record* r) { r->mutable_free_swapped()->add_swapped(5); }),
       "free_swapped: got swapped block 5, allowed: 0 to 4"},
      {With(Adopted(), [](Record* r) { r->mutable_adopted()->add_blocks(8); }),
       "adopted: got block 8, allowed: 1 to 7"},
      {With(SharedAs("x"), [](Record* r) { r->mutable_share()->clear_blocks(); }),
       "share: got no block, allowed: one or more"},
      {With(SharedAs("x"), [](Record* r) { r->mutable_share()->set_name("x"); }),
       "share: got a name of 1 bytes, allowed: a digest of 64"},
      {With(Released(), [](Record* r) { r->mutable_release()->clear_name(); }),
       "release: got a name of 0 bytes, allowed: a digest of 64"},
      {WithPart([](v1::KvPart* part) { part->set_block(8); }),
       "write: got block 8, allowed: 1 to 7"},
      {WithPart([](v1::KvPart* part) { part->set_first_layer(2); }),
       "write: block 7: got 1 layers from layer 2 on, allowed: at least 1 of 2"},
      {WithPart([](v1::KvPart* part) { part->set_num_layers(0xffffffff); }),
       "write: block 7: got 4294967295 layers from layer 1 on"},
      {WithPart([](v1::KvPart* part) { part->set_num_tokens(5); }),
       "write: block 7: got 5 tokens, allowed: 1 to 4"},
      {WithPart([](v1::KvPart* part) { part->set_num_tokens(2); }),
       "write: block 7: got 288 bytes of contents, allowed: as many as 1 layers of 2 tokens make"},
      {WithPart([](v1::KvPart* part) { part->clear_contents(); }), "got 0 bytes of contents"},
      {With(Written(),
            [](Record* r) {
              r->mutable_write()->mutable_parts(0)->mutable_contents()->at(9) = 'v';
            }),
       "write: block 7: crc32: got "},
      {With(Written(), [](Record* r) { r->mutable_write()->clear_parts(); }),
       "write: got no part of a block"},
      {With(Written(), [](Record* r) { r->mutable_write()->mutable_layout()->set_dtype("f64"); }),
       "write: layout.dtype: got \"f64\", allowed: f32, bf16"},
      {With(Written(), [](Record* r) { r->mutable_write()->mutable_layout()->set_block_size(16); }),
       "write: layout.block_size: got 16, allowed: 4, that of the recorded pool"},
      {With(Written(), [](Record* r) { r->mutable_adopted()->add_blocks(7); }),
       "is several calls at once"},
      {With(Written(), [](Record* r) { r->mutable_free()->add_blocks(7); }),
       "is several calls at once"}};
  for (const auto& [record, message] : wrong) {
    const absl::Status status = ParseRecording("f", FileOf({Header(), record})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("f: record 2, at byte "), HasSubstr(message)));
  }
}

TEST(KvRecords, AreOfNoServerWithoutSwapSpace) {
  v1::SessionRecord header = Header();
  header.mutable_header()->mutable_server()->mutable_pool()->set_swap_blocks(0);
  const absl::Status status = ParseRecording("f", FileOf({header, SwappedOut()})).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("swap_out: got swapped block 0, allowed: none"));
}

TEST(KvRecords, AreInNoFileOfTheVersionBefore) {
  const absl::Status status = ParseRecording("f", FileOf({Header(), Adopted()}, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("which files of version 1 have none of"));
}

TEST(SharedNameDigest, IsASha256) {
  // Of "abc", FIPS 180-2.
  EXPECT_EQ(SharedNameDigest("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace reprise::service
