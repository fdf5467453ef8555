// SPDX-License-Identifier: Apache-2.0
// Contents of KV blocks read from one engine and written to another, and blocks that wait in swap
// space: rows go on as if nothing had been moved, and what is not the session's stays out of reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;
using ::testing::SizeIs;

using ::reprise::testing::kDenied;
using ::reprise::testing::kExhausted;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kRange;

constexpr uint32_t kRow = 1;
constexpr uint32_t kLayers = 2;

class KvTransferTest : public testing::EngineTest {
 protected:
  // With swap space for `places` blocks, and NaN in whatever nobody has written.
  TestEngine Make(uint32_t places = 0, uint32_t delay_us = 0) const {
    TestEngineOptions options = Options();
    options.diagnostics.poison = true;
    options.delays = {.max_us = static_cast<int>(delay_us), .seed = 3};
    if (places != 0) {
      const TestEngine measured = MakeTestEngine(options);
      const PoolInfo pool = measured.engine->pool();
      options.engine.swap_bytes = pool.bytes / pool.num_blocks * places;
    }
    return MakeTestEngine(options);
  }
};
REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(KvTransferTest);

// Tokens 3 to `count` of a row whose first two were sampled before anything was moved.
struct Halves {
  std::vector<uint32_t> prompt;
  std::vector<Token> all = {};  // of the row that nothing happens to
};
Halves Undisturbed(DecodeEngine& engine, uint64_t seed, uint32_t length) {
  Halves halves{.prompt = RandomPrompt(seed, length)};
  EngineDriver driver(engine);
  halves.all = driver.Generate({.row = kRow, .prompt = halves.prompt}, 6);
  return halves;
}

// Runs the prompt and one step: length + 1 tokens lie in the blocks, and two were sampled.
std::vector<uint32_t> StartFirstHalf(EngineDriver& driver, const Halves& halves) {
  driver.Start({.row = kRow, .prompt = halves.prompt}, 6);
  driver.ContinueAll(1);
  return driver.blocks(kRow);
}

// Goes on over `blocks` as a row of its own.
std::vector<Token> SecondHalf(EngineDriver& driver, const std::vector<uint32_t>& blocks,
                              const Halves& halves) {
  const auto context = static_cast<uint32_t>(halves.prompt.size()) + 1;
  driver.Step({.add = {{.row = kRow + 1, .blocks = blocks, .context_length = context}},
               .chunks = {{.row = kRow + 1, .tokens = {halves.all[1].id}}}});
  driver.ContinueAll(3);
  return driver.tokens(kRow + 1);
}

std::vector<Token> Rest(const Halves& halves) { return {halves.all.begin() + 2, halves.all.end()}; }

std::vector<KvPart> PartsOf(const std::vector<uint32_t>& blocks, uint32_t first, uint32_t count) {
  std::vector<KvPart> parts;
  for (const uint32_t block : blocks)
    parts.push_back({.block = block, .first_layer = first, .num_layers = count});
  return parts;
}

TEST_P(KvTransferTest, ARowGoesOnInAnotherEngineWithTheSameBits) {
  const TestEngine from = Make(), to = Make();
  const Halves halves = Undisturbed(*from.engine, 1, 9);
  EngineDriver source(*from.engine), target(*to.engine);
  target.Allocate(5);  // other ids than there
  std::vector<uint32_t> blocks = StartFirstHalf(source, halves);
  std::vector<KvPart> parts = PartsOf(blocks, 0, kLayers);
  std::vector<std::byte> contents;
  ASSERT_OK(from.engine->ReadBlocks(source.session().id, parts, &contents));
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].num_tokens, 4u);
  EXPECT_EQ(parts[2].num_tokens, 2u);
  EXPECT_EQ(parts[3].num_tokens, 0u);
  EXPECT_EQ(contents.size(), from.engine->info().kv.TokenBytes() * kLayers * 10);
  const std::vector<uint32_t> new_blocks = target.Allocate(4);
  for (size_t i = 0; i < parts.size(); ++i) parts[i].block = new_blocks[i];
  parts.pop_back();
  ASSERT_OK(to.engine->WriteBlocks(target.session().id, parts, contents));
  EXPECT_EQ(SecondHalf(target, new_blocks, halves), Rest(halves));
}

TEST_P(KvTransferTest, LayersMayComeOneAtATime) {
  const TestEngine tiny = Make();
  const Halves halves = Undisturbed(*tiny.engine, 2, 6);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = StartFirstHalf(driver, halves);
  const std::vector<uint32_t> copies = driver.Allocate(static_cast<uint32_t>(blocks.size()));
  for (size_t i = 0; i < 2; ++i) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      std::vector<KvPart> part = {{.block = blocks[i], .first_layer = layer, .num_layers = 1}};
      std::vector<std::byte> contents;
      ASSERT_OK(tiny.engine->ReadBlocks(driver.session().id, part, &contents));
      part[0].block = copies[i];
      ASSERT_OK(tiny.engine->WriteBlocks(driver.session().id, part, contents));
    }
  }
  driver.Step({.drop = {kRow}});
  EXPECT_EQ(SecondHalf(driver, copies, halves), Rest(halves));
}

// What steps in flight write is read, and what is written is there for the next step.
TEST_P(KvTransferTest, ReadsComeBehindStepsInFlight) {
  const TestEngine tiny = Make(0, 300);
  const std::vector<uint32_t> prompt = RandomPrompt(3, 8);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.Allocate(2);
  const auto read = [&] {
    std::vector<KvPart> parts = PartsOf(blocks, 0, kLayers);
    std::vector<std::byte> contents;
    EXPECT_OK(tiny.engine->ReadBlocks(driver.session().id, parts, &contents));
    return contents;
  };
  const StepTicket ticket =
      driver.Submit({.add = {{.row = kRow, .blocks = blocks}},
                     .chunks = {{.row = kRow, .tokens = prompt, .sample = false}}});
  const std::vector<std::byte> early = read();
  driver.Wait(ticket);
  EXPECT_EQ(early.size(), tiny.engine->info().kv.TokenBytes() * kLayers * 8);
  EXPECT_TRUE(early == read());
}

TEST_P(KvTransferTest, ABlockCountsAsWrittenWithItsLastLayer) {
  const TestEngine tiny = Make();
  const Halves halves = Undisturbed(*tiny.engine, 4, 6);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = StartFirstHalf(driver, halves);
  const uint32_t own = driver.Allocate(1)[0];
  const SessionId id = driver.session().id;
  const auto claim = [&] {
    const absl::Status status =
        driver.TryStep({.add = {{.row = 5, .blocks = {own}, .context_length = 4}}}).status();
    if (status.ok()) driver.Step({.drop = {5}});
    return status;
  };
  const auto write = [&](uint32_t layer) {
    std::vector<KvPart> part = {{.block = blocks[0], .first_layer = layer, .num_layers = 1}};
    std::vector<std::byte> contents;
    EXPECT_OK(tiny.engine->ReadBlocks(id, part, &contents));
    part[0].block = own;
    return tiny.engine->WriteBlocks(id, part, contents);
  };
  EXPECT_THAT(write(1), StatusIs(kPrecondition, "allowed: layer 0, as no block is written"));
  ASSERT_OK(write(0));
  EXPECT_THAT(claim(), StatusIs(kPrecondition, "has written 0"));
  ASSERT_OK(write(1));
  EXPECT_OK(claim());
  // Written anew, it is not there until it is whole again.
  ASSERT_OK(write(0));
  EXPECT_THAT(claim(), StatusIs(kPrecondition, "has written 0"));
  // The block was given back meanwhile: what comes now is a part of nothing.
  driver.Free(std::vector<uint32_t>{own});
  ASSERT_EQ(driver.Allocate(1)[0], own);
  EXPECT_THAT(write(1), StatusIs(kPrecondition, "allowed: layer 0"));
}

TEST_P(KvTransferTest, RefusesPartsThatAreNotThereOrNotTheSessions) {
  const TestEngine tiny = Make();
  EngineDriver driver(*tiny.engine), other(*tiny.engine);
  driver.Start({.row = kRow, .prompt = RandomPrompt(5, 4)}, 2);
  const uint32_t block = driver.Allocate(1)[0], others = other.Allocate(1)[0];
  const SessionId id = driver.session().id;
  DecodeEngine& engine = *tiny.engine;
  const uint64_t token_bytes = engine.info().kv.TokenBytes();
  const auto read = [&](KvPart part) {
    std::vector<std::byte> contents;
    const absl::Status status = engine.ReadBlocks(id, {&part, 1}, &contents);
    EXPECT_TRUE(contents.empty());
    return status;
  };
  const auto write = [&](KvPart part, uint64_t bytes) {
    const std::vector<std::byte> contents(bytes);
    return engine.WriteBlocks(id, {&part, 1}, contents);
  };
  EXPECT_THAT(read({.block = others, .num_layers = 1}), StatusIs(kDenied, "another session"));
  EXPECT_THAT(read({.block = 0, .num_layers = 1}), StatusIs(kRange, "does not exist"));
  EXPECT_THAT(read({.block = block, .num_layers = 0}), StatusIs(kRange, "0 layers from layer 0"));
  EXPECT_THAT(read({.block = block, .first_layer = 2, .num_layers = 1}), StatusIs(kRange, "2"));
  EXPECT_THAT(read({.block = block, .first_layer = 1, .num_layers = ~0u}), StatusIs(kRange, "on"));
  EXPECT_THAT(write({.block = others, .num_layers = 2, .num_tokens = 1}, 2 * token_bytes),
              StatusIs(kDenied, "another session"));
  EXPECT_THAT(write({.block = block, .num_layers = 2, .num_tokens = 0}, 0),
              StatusIs(kRange, "0 tokens; allowed: 1 to 4"));
  EXPECT_THAT(write({.block = block, .num_layers = 2, .num_tokens = 5}, 10 * token_bytes),
              StatusIs(kRange, "5 tokens; allowed: 1 to 4"));
  EXPECT_THAT(write({.block = block, .num_layers = 2, .num_tokens = 1}, 2 * token_bytes - 1),
              StatusIs(kInvalid, "bytes of contents; allowed"));
  EXPECT_THAT(
      write({.block = driver.blocks(kRow)[0], .num_layers = 2, .num_tokens = 1}, 2 * token_bytes),
      StatusIs(kPrecondition, "is in the table of 1 resident row(s)"));
  std::vector<KvPart> many(kMaxKvBlocksPerCall + 1, KvPart{.block = block, .num_layers = 1});
  std::vector<std::byte> contents;
  EXPECT_THAT(engine.ReadBlocks(id, many, &contents), StatusIs(kRange, "allowed: 1 to 256"));
  EXPECT_THAT(engine.ReadBlocks(id, {}, &contents), StatusIs(kRange, "names 0 parts"));
  EXPECT_THAT(engine.ReadBlocks(12345, many, &contents), StatusIs(kNotFound, "12345"));
}

TEST_P(KvTransferTest, SwappedBlocksComeBackAsTheyWere) {
  const TestEngine tiny = Make(6);
  const Halves halves = Undisturbed(*tiny.engine, 6, 9);
  const uint32_t free_blocks = tiny.engine->pool().free_blocks;
  EngineDriver driver(*tiny.engine), other(*tiny.engine);
  const std::vector<uint32_t> blocks = StartFirstHalf(driver, halves);
  driver.Step({.drop = {kRow}});
  auto swapped = tiny.engine->SwapOut(driver.session().id, blocks);
  ASSERT_OK(swapped.status());
  EXPECT_THAT(*swapped, SizeIs(4));
  EXPECT_EQ(tiny.engine->pool().free_blocks, free_blocks);
  EXPECT_EQ(tiny.engine->pool().swap_blocks, 6u);
  EXPECT_EQ(tiny.engine->pool().free_swap_blocks, 2u);
  EXPECT_EQ(tiny.engine->session_use(driver.session().id)->num_blocks, 0u);
  EXPECT_EQ(tiny.engine->session_use(driver.session().id)->num_swapped, 4u);
  // Somebody else writes where it lay.
  other.Start({.row = 3, .prompt = RandomPrompt(7, 20)}, 2);
  const auto back = tiny.engine->SwapIn(driver.session().id, *swapped);
  ASSERT_OK(back.status());
  EXPECT_EQ(tiny.engine->pool().free_swap_blocks, 6u);
  EXPECT_EQ(tiny.engine->session_use(driver.session().id)->num_swapped, 0u);
  EXPECT_EQ(SecondHalf(driver, *back, halves), Rest(halves));
}

// Nobody waits: the step, the move and what follows are in the stream's order.
TEST_P(KvTransferTest, SwapsAreInOrderWithStepsInFlight) {
  const TestEngine tiny = Make(4, 300);
  const Halves halves = Undisturbed(*tiny.engine, 8, 7);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.Allocate(4);
  const SessionId id = driver.session().id;
  const StepTicket first =
      driver.Submit({.add = {{.row = kRow, .blocks = blocks}},
                     .chunks = {{.row = kRow, .tokens = halves.prompt, .sample = false}}});
  const StepTicket second = driver.Submit({.drop = {kRow}});
  const auto swapped = tiny.engine->SwapOut(id, blocks);
  ASSERT_OK(swapped.status());
  const auto back = tiny.engine->SwapIn(id, *swapped);
  ASSERT_OK(back.status());
  driver.Wait(first);
  driver.Wait(second);
  driver.Step({.add = {{.row = 2, .blocks = *back, .context_length = 7}},
               .chunks = {{.row = 2, .tokens = {halves.all[0].id}}}});
  EXPECT_EQ(driver.tokens(2).at(0), halves.all[1]);
}

TEST_P(KvTransferTest, SwapRefusalsChangeNothing) {
  const TestEngine tiny = Make(2);
  DecodeEngine& engine = *tiny.engine;
  EngineDriver driver(engine), other(engine);
  driver.Start({.row = kRow, .prompt = RandomPrompt(9, 4)}, 2);
  const std::vector<uint32_t> own = driver.Allocate(3), others = other.Allocate(1);
  const SessionId id = driver.session().id;
  const uint32_t free_blocks = engine.pool().free_blocks;
  const auto out = [&](std::vector<uint32_t> blocks) {
    return engine.SwapOut(id, blocks).status();
  };
  EXPECT_THAT(out(own), StatusIs(kExhausted, "room for 2 of 2"));
  EXPECT_THAT(out({own[0], others[0]}), StatusIs(kDenied, "another session"));
  EXPECT_THAT(out({own[0], own[0]}), StatusIs(kInvalid, "named twice"));
  EXPECT_THAT(out({driver.blocks(kRow)[0]}), StatusIs(kPrecondition, "resident row"));
  EXPECT_THAT(out({0}), StatusIs(kRange, "does not exist"));
  EXPECT_THAT(out({}), StatusIs(kRange, "names 0 blocks"));
  EXPECT_EQ(engine.pool().free_blocks, free_blocks);
  EXPECT_EQ(engine.pool().free_swap_blocks, 2u);

  const auto swapped = engine.SwapOut(id, std::vector<uint32_t>{own[0], own[1]});
  ASSERT_OK(swapped.status());
  const auto in = [&](SessionId session, std::vector<uint32_t> places) {
    return engine.SwapIn(session, places).status();
  };
  EXPECT_THAT(in(other.session().id, *swapped), StatusIs(kDenied, "is not this session's"));
  EXPECT_THAT(in(id, {(*swapped)[0], (*swapped)[0]}), StatusIs(kInvalid, "named twice"));
  EXPECT_THAT(in(id, {2}), StatusIs(kRange, "less than 2"));
  EXPECT_THAT(in(id, {}), StatusIs(kRange, "names 0 swapped blocks"));
  EXPECT_THAT(engine.FreeSwapped(other.session().id, *swapped), StatusIs(kDenied, "session's"));
  const std::vector<uint32_t> rest = other.Allocate(engine.pool().free_blocks);
  EXPECT_THAT(in(id, *swapped), StatusIs(kExhausted, "asked for 2 KV blocks"));
  EXPECT_EQ(engine.pool().free_swap_blocks, 0u);
  EXPECT_OK(engine.FreeSwapped(id, std::vector<uint32_t>{(*swapped)[1]}));
  EXPECT_EQ(engine.session_use(id)->num_swapped, 1u);
  other.Free(rest);
  EXPECT_OK(in(id, {(*swapped)[0]}));
}

TEST_P(KvTransferTest, SessionsGiveSwapSpaceBackAndMayBeLimited) {
  const TestEngine tiny = Make(3);
  DecodeEngine& engine = *tiny.engine;
  const SessionInfo session = engine.OpenSession({.max_swapped = 2});
  const auto blocks = engine.AllocateBlocks(session.id, 3);
  ASSERT_OK(blocks.status());
  EXPECT_THAT(engine.SwapOut(session.id, *blocks).status(),
              StatusIs(kExhausted, "this session has 0 of the 2"));
  ASSERT_OK(engine.SwapOut(session.id, std::vector<uint32_t>{(*blocks)[0], (*blocks)[2]}).status());
  EXPECT_THAT(engine.SwapOut(session.id, std::vector<uint32_t>{(*blocks)[1]}).status(),
              StatusIs(kExhausted, "this session has 2 of the 2"));
  EXPECT_EQ(engine.pool().free_swap_blocks, 1u);
  ASSERT_OK(engine.CloseSession(session.id));
  EXPECT_EQ(engine.pool().free_swap_blocks, 3u);
}

TEST(KvTransferOptions, SwapSpaceHoldsABlockAtLeast) {
  TestEngineOptions options;
  options.engine.swap_bytes = 1;
  testing::TemporaryDirectory directory;
  ASSERT_OK(testing::WriteTinyModel(options.model, directory.path()).status());
  const auto device = runtime::Device::Create({.kind = runtime::DeviceKind::kHost});
  ASSERT_OK(device.status());
  EXPECT_THAT(
      DecodeEngine::Create(**device, {.directory = directory.path()}, options.engine).status(),
      StatusIs(kInvalid, "swap_bytes: got 1, 0 KV blocks"));
}

}  // namespace
}  // namespace reprise::engine
