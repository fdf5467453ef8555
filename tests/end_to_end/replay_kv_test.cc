// SPDX-License-Identifier: Apache-2.0
// `reprise replay` of sessions whose blocks went to swap space and back, or came from other
// sessions and other servers: repeated to the bit, and what differs in recorded contents shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "nlohmann/json.hpp"
#include "service/kv/kv_wire.h"
#include "tests/end_to_end/program.h"
#include "tests/end_to_end/recordings.h"
#include "tests/service/kv_client.h"
#include "tests/service/served_model.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using service::StreamClient;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two full blocks, and what follows them.
const std::vector<uint32_t> kSystem = {5, 80, 33, 12, 96, 7, 41, 2};
const std::vector<uint32_t> kQuestion = {9, 61, 17};
// Under which they are shared.
constexpr char kName[] = "what nobody guesses";

std::shared_ptr<grpc::Channel> ChannelTo(const ServedProgram& served) {
  return grpc::CreateChannel(served.address(), grpc::InsecureChannelCredentials());
}

// A row over blocks that hold `context` tokens, with room behind them: kQuestion, and some tokens.
void Ask(StreamClient& client, std::vector<uint32_t> blocks, uint32_t context) {
  for (const uint32_t block : client.Allocate(4)) blocks.push_back(block);
  v1::StepRequest step = client.NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(service::kRow);
  add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  add->set_context_length(context);
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(service::kRow);
  chunk->mutable_tokens()->Assign(kQuestion.begin(), kQuestion.end());
  chunk->set_sample(true);
  client.Step(step);
  service::Continue(client, service::kRow, 6);
}

class ReplayedKv : public ::testing::Test {
 protected:
  void SetUp() override { model_ = Model({}, "tiny"); }
  std::string Model(const TinyModelOptions& options, const std::string& name) const {
    const auto model = WriteTinyModel(options, directory_.path() + "/" + name);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.value_or("");
  }
  // Blocks of 4 tokens, as StreamClient takes them.
  std::vector<std::string> Flags(const std::vector<std::string>& more) const {
    std::vector<std::string> flags = {"--block-size", "4",        "--max-rows", "4",
                                      "--record",     recordings_};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  // 2 (K, V) * 2 heads * 8 * 4 bytes per token and layer.
  static std::string KvBytes(int blocks, int layers) {
    return std::to_string(blocks * 4 * 2 * 2 * 8 * 4 * layers);
  }
  std::vector<std::string> Files() const { return RecordingsIn(recordings_); }
  static void Stop(ServedProgram* served) {
    served->program().Signal(SIGTERM);
    EXPECT_EQ(served->program().Wait(), 0) << served->program().stderr_text();
  }
  // A scheduler with so few blocks that rows are preempted.
  void RecordSwaps(const std::string& model, int blocks, int layers) {
    ServedProgram served(model, Flags({"--mixed-buckets", "16,32", "--swap-space", "1MiB",
                                       "--kv-cache", KvBytes(blocks, layers)}));
    ASSERT_TRUE(served.ready());
    const std::string figures = directory_.path() + "/figures.json";
    Program sched({"sched",
                   "--address",
                   served.address(),
                   "--prompt-lengths",
                   "3..40",
                   "--requests",
                   "24",
                   "--max-new-tokens",
                   "30",
                   "--ignore-eos",
                   "--seed",
                   "7",
                   "--temperature",
                   "0.8",
                   "--preempt",
                   "swap",
                   "--priorities",
                   "0,0,3",
                   "--presence-penalty",
                   "0.5",
                   "--quiet",
                   "--json",
                   figures});
    EXPECT_EQ(sched.Wait(), 0) << sched.stderr_text();
    EXPECT_GT(json::parse(ReadTextFile(figures))["figures"]["num_swaps"], 0);
    Stop(&served);
    EXPECT_THAT(served.program().stderr_text(), Not(HasSubstr("stopped: ")));
  }
  static void ExpectEqual(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {"replay"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Program replay(words);
    EXPECT_EQ(replay.Wait(), 0) << replay.stderr_text();
    EXPECT_THAT(replay.stdout_text(), HasSubstr("results: equal"));
  }
  // One session shares what another asks about; the other one's file.
  std::string RecordSharedPrefix() {
    ServedProgram served(model_, Flags({"--kv-cache", "1MiB"}));
    EXPECT_TRUE(served.ready());
    StreamClient first(ChannelTo(served));
    StreamClient second(ChannelTo(served));
    const std::vector<uint32_t> blocks = service::Filled(first, kSystem);
    EXPECT_TRUE(service::Share(first, kName, blocks).ok());
    Ask(first, blocks, 8);
    std::vector<uint32_t> adopted;
    EXPECT_TRUE(service::Adopt(second, kName, &adopted).ok());
    EXPECT_EQ(adopted, blocks);
    Ask(second, adopted, 8);
    v1::StepRequest drop = second.NewStep();
    drop.add_drop(service::kRow);
    second.Step(drop);
    EXPECT_TRUE(service::Release(second, kName).ok());
    // What was adopted is not there any more; a step behind it is repeated, too.
    service::Filled(second, kSystem);
    EXPECT_TRUE(first.Finish().ok());
    EXPECT_TRUE(second.Finish().ok());
    Stop(&served);
    EXPECT_EQ(Files().size(), 2u);
    return Files().back();
  }
  static int NumWrites(const std::string& file) {
    const auto recording = service::ReadRecording(file);
    EXPECT_TRUE(recording.ok()) << recording.status();
    if (!recording.ok()) return 0;
    int count = 0;
    for (const v1::SessionRecord& call : recording->calls) count += call.has_write() ? 1 : 0;
    return count;
  }
  // Every number of the recorded contents gets the other sign.
  static void Negate(const std::string& file, bool with_checksums) {
    RewriteRecording(file, [with_checksums](v1::SessionRecord* call) {
      if (!call->has_write()) return;
      for (v1::KvPart& part : *call->mutable_write()->mutable_parts()) {
        std::string& contents = *part.mutable_contents();
        for (size_t i = 3; i < contents.size(); i += 4)
          contents[i] = static_cast<char>(contents[i] ^ 0x80);
        if (with_checksums) part.set_crc32(service::Crc32Of(part));
      }
    });
  }

  TemporaryDirectory directory_;
  std::string model_;
  const std::string recordings_ = directory_.path() + "/recordings";
};

TEST_F(ReplayedKv, OfASchedulerThatSwapsIsEqual) {
  RecordSwaps(model_, /*blocks=*/30, /*layers=*/2);
  ASSERT_EQ(Files().size(), 1u);
  const std::string file = Files()[0];
  const auto recording = service::ReadRecording(file);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ(recording->end, v1::RECORD_END_REASON_SESSION_ENDED);
  ExpectEqual({file});
  // On a server with swap space, too, and on none without.
  {
    ServedProgram served(model_, {"--block-size", "4", "--max-rows", "4", "--mixed-buckets",
                                  "16,32", "--swap-space", "1MiB"});
    ASSERT_TRUE(served.ready());
    ExpectEqual({"--connect", served.address(), file});
  }
  ServedProgram served(model_,
                       {"--block-size", "4", "--max-rows", "4", "--mixed-buckets", "16,32"});
  ASSERT_TRUE(served.ready());
  Program refused({"replay", "--connect", served.address(), file});
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(refused.stderr_text(),
              AllOf(HasSubstr(file + ": swap_blocks: got 0, allowed: "),
                    HasSubstr("or more, the blocks that the recording has in swap space")));
}

// Whose rows take their state along.
TEST_F(ReplayedKv, OfASchedulerThatSwapsRowsWithStateIsEqual) {
  RecordSwaps(Model({.architecture = "granitemoehybrid", .num_experts = 0}, "hybrid"),
              /*blocks=*/30, /*layers=*/1);
  ASSERT_EQ(Files().size(), 1u);
  ExpectEqual({Files()[0]});
}

TEST_F(ReplayedKv, OfASharedPrefixIsEqual) {
  const std::string file = RecordSharedPrefix();
  EXPECT_GT(NumWrites(file), 0);
  EXPECT_THAT(ReadTextFile(file), Not(HasSubstr(kName)));
  ExpectEqual(Files());
  ServedProgram served(model_, {"--block-size", "4", "--max-rows", "4", "--kv-cache", "1MiB"});
  ASSERT_TRUE(served.ready());
  // Whose sessions share under the recorded name at the time.
  StreamClient beside(ChannelTo(served));
  EXPECT_TRUE(service::Share(beside, kName, service::Filled(beside, kSystem)).ok());
  for (const std::string& each : Files()) ExpectEqual({"--connect", served.address(), each});
}

TEST_F(ReplayedKv, NoticesOtherContents) {
  const std::string file = RecordSharedPrefix();
  Negate(file, /*with_checksums=*/true);
  Program replay({"replay", file});
  EXPECT_EQ(replay.Wait(), 1);
  EXPECT_THAT(replay.stderr_text(),
              AllOf(HasSubstr(file + ": step 1, row "), HasSubstr(": expected ")));
  // Back again, and then not as it says.
  Negate(file, /*with_checksums=*/true);
  ExpectEqual({file});
  Negate(file, /*with_checksums=*/false);
  Program refused({"replay", file});
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(refused.stderr_text(), HasSubstr("crc32: got "));
}

TEST_F(ReplayedKv, OfContentsThatTheClientWroteIsEqual) {
  {
    ServedProgram served(model_, Flags({"--kv-cache", "1MiB"}));
    ASSERT_TRUE(served.ready());
    StreamClient client(ChannelTo(served));
    const std::vector<uint32_t> blocks = service::Filled(client, kSystem);
    v1::ReadBlocksResponse read;
    ASSERT_TRUE(service::Read(client, blocks, &read).ok());
    const std::vector<uint32_t> copies = client.Allocate(2);
    const grpc::Status written = service::Write(client, service::WriteOf(read, copies));
    ASSERT_TRUE(written.ok()) << written.error_message();
    Ask(client, copies, 8);
    EXPECT_TRUE(client.Finish().ok());
    Stop(&served);
  }
  const std::string file = Files().at(0);
  EXPECT_EQ(NumWrites(file), 1);
  ExpectEqual({file});
  Negate(file, /*with_checksums=*/true);
  Program replay({"replay", file});
  EXPECT_EQ(replay.Wait(), 1);
  EXPECT_THAT(replay.stderr_text(), HasSubstr(file + ": step 3, row "));
}

TEST_F(ReplayedKv, OfBlocksFromAnotherServerIsEqual) {
  const std::string exchange = directory_.path() + "/exchange";
  std::filesystem::create_directory(exchange);
  ASSERT_EQ(chmod(exchange.c_str(), 0700), 0);
  {
    ServedProgram prefill(model_, {"--device", "host", "--block-size", "4", "--kv-cache", "1MiB",
                                   "--kv-exchange", exchange, "--export-space", "1MiB"});
    ServedProgram decode(
        model_, Flags({"--device", "host", "--kv-cache", "1MiB", "--kv-exchange", exchange}));
    ASSERT_TRUE(prefill.ready() && decode.ready());
    StreamClient there(ChannelTo(prefill)), here(ChannelTo(decode));
    std::vector<uint32_t> tokens = kSystem;
    tokens.push_back(3);
    const std::vector<uint32_t> blocks = service::Filled(there, tokens);
    std::vector<std::string> tickets;
    ASSERT_TRUE(service::Export(there, blocks, &tickets).ok());
    const std::vector<uint32_t> own = here.Allocate(3);
    std::vector<uint32_t> num_tokens;
    const grpc::Status imported = service::Import(here, own, tickets, &num_tokens);
    ASSERT_TRUE(imported.ok()) << imported.error_message();
    Ask(here, own, 9);
    EXPECT_TRUE(here.Finish().ok());
    EXPECT_TRUE(there.Finish().ok());
    Stop(&decode);
    Stop(&prefill);
  }
  const std::string file = Files().at(0);
  EXPECT_GT(NumWrites(file), 0);
  ExpectEqual({file});
}

TEST_F(ReplayedKv, SaysWhatContradictsItself) {
  RecordSwaps(model_, /*blocks=*/30, /*layers=*/2);
  const std::string file = Files().at(0);
  RewriteRecording(file, [](v1::SessionRecord* call) {
    if (call->has_swap_out()) call->mutable_swapped_out()->set_swapped(0, 1'000'000);
  });
  Program replay({"replay", file});
  EXPECT_EQ(replay.Wait(), 1);
  EXPECT_THAT(replay.stderr_text(),
              AllOf(HasSubstr(file + ": record "),
                    HasSubstr("swap_out: got swapped block 1000000, allowed: 0 to ")));
}

}  // namespace
}  // namespace reprise::testing
