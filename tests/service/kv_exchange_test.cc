// SPDX-License-Identifier: Apache-2.0
// Blocks that one server hands another over shared memory: rows over them say what they would have
// said, and who has no ticket, or had one for what is not there any more, gets nothing.
#include "service/kv/kv_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/service/kv_client.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"
#include "tests/testing/status_matchers.h"

namespace reprise::service {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two full blocks and a bit.
const std::vector<uint32_t> kLongPrompt = {5, 80, 33, 12, 96, 7, 41, 2, 9, 61};
constexpr uint32_t kNumBlocks = 3;

class KvExchanges : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(chmod(directory_.path().c_str(), 0700), 0); }
  ServedModel::Options Exchanging(uint64_t export_bytes = 64 << 10) const {
    ServedModel::Options options;
    options.export_bytes = export_bytes;
    options.kv_exchange = directory_.path();
    return options;
  }
  size_t NumFiles() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(directory_.path()), {}));
  }
  static void ExpectRefused(const grpc::Status& status, grpc::StatusCode code,
                            const std::string& says) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(says));
  }
  testing::TemporaryDirectory directory_;
};

// Of `client`'s row, whose first token is known, with its blocks.
struct Prefilled {
  explicit Prefilled(StreamClient& client)
      : first_token(client.StartRow(kRow, kLongPrompt, kMaxContext)) {
    for (uint32_t block = 1; blocks.size() < kNumBlocks; ++block) {
      v1::ReadBlocksResponse read;
      if (Read(client, {block}, &read).ok() && read.parts(0).num_tokens() != 0)
        blocks.push_back(block);
    }
  }
  uint32_t first_token;
  std::vector<uint32_t> blocks;
};

TEST_F(KvExchanges, ARowGoesOnOnTheServerThatImportsItsBlocks) {
  ServedModel prefill(Exchanging()), decode(Exchanging(0));
  StreamClient there(prefill.NewChannel()), here(decode.NewChannel());
  const Prefilled row(there);
  std::vector<std::string> tickets;
  ASSERT_TRUE(Export(there, row.blocks, &tickets).ok());
  ASSERT_EQ(tickets.size(), kNumBlocks);
  EXPECT_EQ(prefill.engine().pool().free_export_blocks,
            prefill.engine().pool().export_blocks - kNumBlocks);
  const std::vector<uint32_t> blocks = here.Allocate(kMaxContext / kBlockSize);
  std::vector<uint32_t> num_tokens;
  const grpc::Status imported =
      Import(here, {blocks.begin(), blocks.begin() + kNumBlocks}, tickets, &num_tokens);
  ASSERT_TRUE(imported.ok()) << imported.error_message();
  std::ranges::sort(num_tokens);
  EXPECT_THAT(num_tokens, ElementsAre(2u, 4u, 4u));
  std::vector<uint32_t> tokens = {row.first_token, GoOn(here, kRow, blocks, 10, row.first_token)};
  const std::vector<uint32_t> more = Continue(here, kRow, 10);
  tokens.insert(tokens.end(), more.begin(), more.end());
  EXPECT_EQ(tokens, prefill.Reference(kLongPrompt, 12));
  // The row that was copied does not notice, and its blocks are its own.
  const std::vector<uint32_t> own = Continue(there, kRow, 3);
  EXPECT_EQ(own, std::vector<uint32_t>(tokens.begin() + 1, tokens.begin() + 4));
}

TEST_F(KvExchanges, CopiesStayUntilTheyAreFreedOrTheirSessionEnds) {
  ServedModel prefill(Exchanging()), decode(Exchanging(0));
  StreamClient here(decode.NewChannel());
  const std::vector<uint32_t> blocks = here.Allocate(kNumBlocks);
  std::vector<std::string> tickets, others;
  std::vector<uint32_t> num_tokens;
  {
    StreamClient there(prefill.NewChannel());
    const Prefilled row(there);
    ASSERT_TRUE(Export(there, row.blocks, &tickets).ok());
    ASSERT_TRUE(Export(there, {row.blocks[0]}, &others).ok());
    // As often as anybody likes.
    EXPECT_TRUE(Import(here, blocks, tickets, &num_tokens).ok());
    EXPECT_TRUE(Import(here, {blocks[1]}, others, &num_tokens).ok());
    EXPECT_TRUE(FreeExported(there, others).ok());
    ExpectRefused(Import(here, {blocks[1]}, others, &num_tokens), kNotFound, "no copy (any more)");
    ExpectRefused(FreeExported(there, others), kDenied, "not this session's");
    EXPECT_TRUE(Import(here, blocks, tickets, &num_tokens).ok());
  }
  EXPECT_TRUE(Eventually([&] {
    const auto pool = prefill.engine().pool();
    return pool.free_export_blocks == pool.export_blocks;
  }));
  ExpectRefused(Import(here, blocks, tickets, &num_tokens), kNotFound, "no copy (any more)");
  // Places that are used again have other keys.
  StreamClient next(prefill.NewChannel());
  const Prefilled row(next);
  std::vector<std::string> again;
  ASSERT_TRUE(Export(next, row.blocks, &again).ok());
  ExpectRefused(Import(here, blocks, tickets, &num_tokens), kNotFound, "no copy (any more)");
  EXPECT_TRUE(Import(here, blocks, again, &num_tokens).ok());
}

TEST_F(KvExchanges, BlocksComeBackOnTheServerThatExportedThem) {
  ServedModel served(Exchanging());
  StreamClient client(served.NewChannel());
  const Prefilled row(client);
  std::vector<std::string> tickets;
  ASSERT_TRUE(Export(client, row.blocks, &tickets).ok());
  const std::vector<uint32_t> blocks = client.Allocate(4);
  std::vector<uint32_t> num_tokens;
  ASSERT_TRUE(
      Import(client, {blocks.begin(), blocks.begin() + kNumBlocks}, tickets, &num_tokens).ok());
  const uint32_t token = GoOn(client, kRow + 1, blocks, 10, row.first_token);
  EXPECT_EQ(token, served.Reference(kLongPrompt, 2)[1]);
}

TEST_F(KvExchanges, IdentitiesDoNotGetEachOthersCopies) {
  ServedModel::Options options = Exchanging();
  for (const std::string name : {"chat", "batch"}) {
    Identity identity{.name = name, .roles = Roles::All()};
    identity.tokens = {TokenDigest::Of(name)};
    options.server.identities.push_back(identity);
  }
  ServedModel prefill(options), decode(options);
  StreamClient there(prefill.NewChannel(), "chat"), theirs(decode.NewChannel(), "batch"),
      ours(decode.NewChannel(), "chat");
  const auto allocate = [](StreamClient& client, const std::string& token) {
    grpc::ClientContext context;
    AddToken(token, &context);
    v1::AllocateRequest request;
    v1::AllocateResponse response;
    request.set_session(client.session());
    request.set_count(1);
    EXPECT_TRUE(client.stub().Allocate(&context, request, &response).ok());
    return std::vector<uint32_t>(response.blocks().begin(), response.blocks().end());
  };
  const std::vector<uint32_t> block = allocate(there, "chat");
  v1::StepRequest step = there.NewStep();
  step.add_add()->set_row(kRow);
  step.mutable_add(0)->add_blocks(block[0]);
  step.add_chunks()->set_row(kRow);
  step.mutable_chunks(0)->mutable_tokens()->Add(5);
  there.Step(step);
  std::vector<std::string> tickets;
  ASSERT_TRUE(Export(there, block, &tickets, "chat").ok());
  std::vector<uint32_t> num_tokens;
  ExpectRefused(Import(theirs, allocate(theirs, "batch"), tickets, &num_tokens, "batch"), kNotFound,
                "no copy (any more)");
  EXPECT_TRUE(Import(ours, allocate(ours, "chat"), tickets, &num_tokens, "chat").ok());
}

class BadExchange : public KvExchanges {
 protected:
  void SetUp() override {
    KvExchanges::SetUp();
    prefill_ = std::make_unique<ServedModel>(Exchanging());
    decode_ = std::make_unique<ServedModel>(Exchanging());
    there_ = std::make_unique<StreamClient>(prefill_->NewChannel());
    here_ = std::make_unique<StreamClient>(decode_->NewChannel());
    row_ = std::make_unique<Prefilled>(*there_);
    ASSERT_TRUE(Export(*there_, row_->blocks, &tickets_).ok());
    blocks_ = here_->Allocate(kNumBlocks);
  }
  grpc::Status ImportWith(const std::vector<std::string>& tickets) {
    return Import(*here_, blocks_, tickets, &num_tokens_);
  }
  std::unique_ptr<ServedModel> prefill_, decode_;
  std::unique_ptr<StreamClient> there_, here_;
  std::unique_ptr<Prefilled> row_;
  std::vector<std::string> tickets_;
  std::vector<uint32_t> blocks_, num_tokens_;
};

TEST_F(BadExchange, TicketsThatAreNoneAreRefused) {
  const auto changed = [this](size_t at) {
    std::vector<std::string> tickets = tickets_;
    tickets[1][at] = static_cast<char>(tickets[1][at] ^ 1);
    return tickets;
  };
  ExpectRefused(ImportWith(changed(0)), kInvalid, "of several servers");
  ExpectRefused(ImportWith(changed(17)), kNotFound, "no copy");
  ExpectRefused(ImportWith(changed(19)), kNotFound, "no copy");
  ExpectRefused(ImportWith(changed(35)), kNotFound, "no copy");
  ExpectRefused(ImportWith({}), kInvalid, "got 0 for 3 blocks");
  ExpectRefused(ImportWith({"", "", ""}), kInvalid, "of 0 bytes");
  ExpectRefused(ImportWith({tickets_[0], tickets_[1]}), kInvalid, "got 2 for 3");
  const std::string zeros = tickets_[0].substr(0, 20) + std::string(16, '\0');
  ExpectRefused(ImportWith({zeros, zeros, zeros}), kNotFound, "no copy");
  std::string nobodys = tickets_[0];
  std::fill_n(nobodys.begin(), 16, 'x');
  ExpectRefused(ImportWith({nobodys, nobodys, nobodys}), kNotFound, "a server that is not there");
  ExpectRefused(FreeExported(*here_, tickets_), kNotFound, "of another server");
  EXPECT_TRUE(ImportWith(tickets_).ok());
}

TEST_F(BadExchange, BlocksThatTheSessionMayNotWriteAreRefused) {
  const std::vector<std::string> one = {tickets_[0]};
  ExpectRefused(Import(*here_, {0}, one, &num_tokens_), kRange, "");
  ExpectRefused(Import(*here_, {4000000000u}, one, &num_tokens_), kRange, "");
  StreamClient other(decode_->NewChannel());
  ExpectRefused(Import(*here_, other.Allocate(1), one, &num_tokens_), kDenied, "");
  ExpectRefused(Import(*here_, {blocks_[0], blocks_[0]}, {one[0], one[0]}, &num_tokens_), kInvalid,
                "named twice");
  here_->StartRow(kRow, kOwnPrompt, kMaxContext);
  for (uint32_t block = 1; block < 30; ++block) {
    v1::ReadBlocksResponse read;
    if (!Read(*here_, {block}, &read).ok() || read.parts(0).num_tokens() == 0) continue;
    ExpectRefused(Import(*here_, {block}, one, &num_tokens_), kPrecondition, "resident row");
  }
  EXPECT_EQ(Continue(*here_, kRow, 2)[1], decode_->Reference(kOwnPrompt, 3)[2]);
}

TEST_F(BadExchange, BlocksThatCannotBeExportedAreRefused) {
  std::vector<std::string> tickets;
  ExpectRefused(Export(*there_, {}, &tickets), kRange, "names 0 blocks");
  ExpectRefused(Export(*there_, there_->Allocate(1), &tickets), kPrecondition, "written nothing");
  ExpectRefused(Export(*here_, blocks_, &tickets), kPrecondition, "written nothing");
  ExpectRefused(Export(*here_, {30}, &tickets), kDenied, "");
  const uint32_t free_places = prefill_->engine().pool().free_export_blocks;
  const std::vector<uint32_t> many(free_places + 1, row_->blocks[0]);
  ExpectRefused(Export(*there_, many, &tickets), kExhausted, "asked for export space");
  EXPECT_EQ(prefill_->engine().pool().free_export_blocks, free_places);
}

TEST_F(BadExchange, ASessionHasNoMoreThanItMay) {
  ServedModel::Options options = Exchanging();
  options.server.session_limits.max_exported = 2;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  const Prefilled row(client);
  std::vector<std::string> tickets;
  ExpectRefused(Export(client, row.blocks, &tickets), kExhausted, "of the 2 that a session may");
  EXPECT_TRUE(Export(client, {row.blocks[0], row.blocks[1]}, &tickets).ok());
  EXPECT_TRUE(FreeExported(client, {tickets[0]}).ok());
  EXPECT_TRUE(Export(client, {row.blocks[2]}, &tickets).ok());
}

TEST_F(BadExchange, AnotherModelsBlocksAreRefused) {
  ServedModel::Options options = Exchanging(0);
  options.model_seed = 2;
  ServedModel other(options);
  StreamClient client(other.NewChannel());
  ExpectRefused(Import(client, client.Allocate(3), tickets_, &num_tokens_), kPrecondition,
                "layout.model");
}

TEST_F(BadExchange, AServerWithoutADirectoryOrWithoutSpaceSaysSo) {
  ServedModel none, importing(Exchanging(0));
  StreamClient client(none.NewChannel()), second(importing.NewChannel());
  std::vector<std::string> tickets;
  ExpectRefused(Export(client, {1}, &tickets), kPrecondition, "--kv-exchange");
  ExpectRefused(Import(client, client.Allocate(3), tickets_, &num_tokens_), kPrecondition,
                "--kv-exchange");
  ExpectRefused(FreeExported(client, tickets_), kPrecondition, "--kv-exchange");
  ExpectRefused(Export(second, {1}, &tickets), kPrecondition, "--export-space");
  ExpectRefused(FreeExported(second, tickets_), kNotFound, "of another server");
}

TEST_F(BadExchange, AServerThatHasGoneLeavesNothing) {
  ASSERT_TRUE(ImportWith(tickets_).ok());
  EXPECT_EQ(NumFiles(), 2u);
  there_.reset();
  prefill_.reset();
  EXPECT_EQ(NumFiles(), 1u);
  ExpectRefused(ImportWith(tickets_), kNotFound, "a server that is not there");
}

TEST_F(KvExchanges, FilesThatAreLeftBehindAreRemovedAndOthersAreNotRead) {
  const auto window = ExportWindow::Make(
      directory_.path(), {.id = std::string(16, 'a'), .num_places = 3, .handle = "handle"});
  ASSERT_OK(window);
  const std::string path = std::filesystem::directory_iterator(directory_.path())->path();
  const auto open = [&] { return ExportWindow::Open(directory_.path(), std::string(16, 'a')); };
  ASSERT_OK(open());
  EXPECT_EQ((*open())->description().handle, "handle");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(open(), StatusIs(absl::StatusCode::kFailedPrecondition, "this user's"));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  // Nobody has it.
  const std::string left = directory_.path() + "/" + std::string(32, 'b') + ".export";
  std::filesystem::copy_file(path, left);
  ASSERT_EQ(chmod(left.c_str(), 0600), 0);
  EXPECT_THAT(ExportWindow::Open(directory_.path(), std::string(16, '\xbb')),
              StatusIs(absl::StatusCode::kNotFound, "its server has ended"));
  std::ofstream(directory_.path() + "/note") << "nobody's";
  EXPECT_TRUE(ExportWindow::RemoveLeftBehind(directory_.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_EQ(NumFiles(), 2u);
}

// What a damaged file says is not believed.
TEST_F(KvExchanges, AWindowOfOtherContentsIsRefused) {
  const auto window = ExportWindow::Make(
      directory_.path(), {.id = std::string(16, 'a'), .num_places = 3, .handle = "handle"});
  ASSERT_OK(window);
  const std::string path = std::filesystem::directory_iterator(directory_.path())->path();
  for (size_t at = 0; at < 40; ++at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get());
    const auto put = [&](char value) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(value).flush();
    };
    put(static_cast<char>(byte ^ 0x41));
    EXPECT_THAT(ExportWindow::Open(directory_.path(), std::string(16, 'a')),
                StatusIs(absl::StatusCode::kFailedPrecondition, "other contents"))
        << at;
    put(byte);
  }
  ASSERT_OK(ExportWindow::Open(directory_.path(), std::string(16, 'a')));
}

TEST_F(KvExchanges, ACopyThatIsTakenBackWhileItIsReadIsLost) {
  const auto window =
      ExportWindow::Make(directory_.path(), {.id = std::string(16, 'a'), .num_places = 2});
  ASSERT_OK(window);
  const auto opened = ExportWindow::Open(directory_.path(), std::string(16, 'a'));
  ASSERT_OK(opened);
  const std::string key(16, 'k');
  (*window)->Publish(1, key, "chat", 7);
  EXPECT_EQ((*opened)->Find(1, key, "chat"), 7u);
  EXPECT_EQ((*opened)->Find(1, key, "chats"), std::nullopt);
  EXPECT_EQ((*opened)->Find(1, key, ""), std::nullopt);
  EXPECT_EQ((*opened)->Find(0, key, "chat"), std::nullopt);
  EXPECT_EQ((*opened)->Find(2, key, "chat"), std::nullopt);
  EXPECT_EQ((*opened)->Find(0, std::string(16, '\0'), ""), std::nullopt);
  (*window)->Revoke(1);
  EXPECT_EQ((*opened)->Find(1, key, "chat"), std::nullopt);
}

// What an engine makes of a check that fails: nobody reads what was copied.
TEST_F(KvExchanges, BlocksOfAnImportThatFailsHoldNothing) {
  ServedModel served(Exchanging());
  StreamClient client(served.NewChannel());
  const Prefilled row(client);
  std::vector<std::string> tickets;
  ASSERT_TRUE(Export(client, {row.blocks[0]}, &tickets).ok());
  engine::DecodeEngine& engine = served.engine();
  const engine::SessionInfo session = engine.OpenSession();
  const auto blocks = engine.AllocateBlocks(session.id, 1);
  ASSERT_OK(blocks);
  const engine::ExportedBlock copy = {.place = 0, .num_tokens = 4};
  const auto import = [&](const std::function<absl::Status()>& check) {
    return engine.ImportBlocks(
        session.id, *blocks,
        {.data = engine.export_space().data, .blocks = {&copy, 1}, .check = check});
  };
  EXPECT_THAT(import([] { return absl::DataLossError("gone"); }),
              StatusIs(absl::StatusCode::kDataLoss, "gone"));
  engine::KvPart part = {.block = (*blocks)[0], .num_layers = 1};
  std::vector<std::byte> contents;
  ASSERT_OK(engine.ReadBlocks(session.id, {&part, 1}, &contents));
  EXPECT_EQ(part.num_tokens, 0u);
  ASSERT_OK(import([] { return absl::OkStatus(); }));
  ASSERT_OK(engine.ReadBlocks(session.id, {&part, 1}, &contents));
  EXPECT_EQ(part.num_tokens, 4u);
}

TEST_F(KvExchanges, ADirectoryThatOthersMayUseIsRefused) {
  ServedModel served;
  EXPECT_THAT(KvExchange::Create(served.engine(), directory_.path() + "/none", "model"),
              StatusIs(absl::StatusCode::kNotFound, "none"));
  ASSERT_EQ(chmod(directory_.path().c_str(), 0750), 0);
  EXPECT_THAT(KvExchange::Create(served.engine(), directory_.path(), "model"),
              StatusIs(absl::StatusCode::kPermissionDenied, "chmod 700"));
}

}  // namespace
}  // namespace reprise::service
