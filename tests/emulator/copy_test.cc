// SPDX-License-Identifier: Apache-2.0
// Asynchronous and bulk copies: pipelines come out right, and each mistake in one is found.
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/map_tiles.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/probe_kernels.h"
#include "tests/emulator/run_block.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Mistake = CopyArgs::Mistake;

constexpr unsigned kConsumers = 128;
constexpr int kRows = 7;
constexpr char kSkipped[] = "AddressSanitizer's builds end the program here";

class Copies : public ::testing::TestWithParam<unsigned> {
 protected:
  Copies() : x_(kRows * kConsumers * 4), out_(kConsumers * 4) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 977);
  }
  std::string ErrorIn(void (*body)(void*), Mistake mistake, uint64_t seed) {
    emulator::SetScheduleSeed(seed);
    out_.assign(out_.size(), -1.0f);
    CopyArgs args{.x = x_.data(), .out = out_.data(), .rows = kRows, .mistake = mistake};
    const bool bulk = body == &CopyBulkPipeline;
    return ErrorOf(body, &args,
                   {.threads = kConsumers + (bulk ? GetParam() : 0),
                    .warp_size = GetParam(),
                    .shared_bytes = kConsumers * 32 + (bulk ? 64 : 0)});
  }
  // Sum over rows of the neighbour's vector.
  float Expected(unsigned thread, unsigned element) const {
    const unsigned neighbour = (thread + 1) % kConsumers;
    float sum = 0.0f;
    for (unsigned row = 0; row < kRows; ++row) {
      sum += x_[(row * kConsumers + neighbour) * 4 + element];
    }
    return sum;
  }
  std::vector<float> x_, out_;
};
INSTANTIATE_TEST_SUITE_P(Warps, Copies, ::testing::Values(32u, 64u));

TEST_P(Copies, OfThreadsLandWhenWaitedFor) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_EQ(ErrorIn(&CopyAsyncPipeline, Mistake::kNone, seed), "");
  }
  for (unsigned t = 0; t < kConsumers; ++t) {
    const bool is_zero = t + 2 == kConsumers;  // reads the last thread's
    for (unsigned e = 0; e < 4; ++e) EXPECT_EQ(out_[t * 4 + e], is_zero ? 0.0f : Expected(t, e));
  }
}

TEST_P(Copies, OfBulksLandBeforeTheirPhaseCompletes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_EQ(ErrorIn(&CopyBulkPipeline, Mistake::kNone, seed), "");
  }
  for (unsigned t = 0; t < kConsumers; ++t) {
    for (unsigned e = 0; e < 4; ++e) EXPECT_EQ(out_[t * 4 + e], Expected(t, e));
  }
}

TEST_P(Copies, ThatNobodyWaitsForAreFound) {
  EXPECT_THAT(
      ErrorIn(&CopyAsyncPipeline, Mistake::kNeverWaited, 1),
      AllOf(HasSubstr("the block ended with a copy in flight"), HasSubstr("CopyAsyncPipeline")));
}

TEST_P(Copies, ToWhereTheyMustNotGoAreFound) {
  EXPECT_THAT(ErrorIn(&CopyToUnaligned, Mistake::kNone, 1),
              HasSubstr("allowed: 4, 8 or 16 bytes, from and to multiples of them"));
}

TEST_P(Copies, InFlightAreForbiddenMemoryToAddressSanitizer) {
  if (emulator::kChecksAccesses) GTEST_SKIP() << "not an AddressSanitizer build";
  EXPECT_DEATH(ErrorIn(&CopyAsyncPipeline, Mistake::kNoWait, 1), "use-after-poison");
}

TEST_P(Copies, ReadBeforeTheyLandedAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kNoWait, seed),
                AllOf(HasSubstr("copy in flight to dynamic shared memory"),
                      ContainsRegex("copy started at .*copy_kernels.cc:[0-9]+"),
                      ContainsRegex("read of 4 bytes at .*copy_kernels.cc:[0-9]+")));
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kWaitTooLittle, seed),
                HasSubstr("copy in flight to"));
  }
}

TEST_P(Copies, OfOthersWithoutABarrierAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kNoBarrier, seed), ::testing::Not(""));
  }
}

TEST_P(Copies, OverWhatOthersMayStillReadAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kNoBarrierBefore, seed), ::testing::Not(""));
  }
}

TEST_P(Copies, OfBulksWithOneMistakeAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (const Mistake mistake : {Mistake::kNoWait, Mistake::kNoBarrierBefore, Mistake::kNoExpect,
                                Mistake::kArriveTooEarly, Mistake::kNoInitBarrier}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      EXPECT_THAT(ErrorIn(&CopyBulkPipeline, mistake, seed), ::testing::Not(""))
          << static_cast<int>(mistake) << " with seed " << seed;
    }
  }
}

TEST_P(Copies, OfBulksThatNobodyWaitsForAreFoundInAnySchedule) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyBulkPipeline, Mistake::kNeverWaited, seed),
                HasSubstr("the block ended with a bulk copy in flight"));
  }
}

// ---- a wait for one of two barriers ----

class WaitsForEither : public ::testing::Test {
 protected:
  std::string Error(EitherArgs args, uint64_t seed) {
    emulator::SetScheduleSeed(seed);
    out_.assign(out_.size(), 0.0f);
    args.x = x_;
    args.out = out_.data();
    return ErrorOf(&WaitForEither, &args, {.threads = 32, .warp_size = 32, .shared_bytes = 64});
  }
  alignas(16) const float x_[4] = {7.0f, 0.0f, 0.0f, 0.0f};
  std::vector<float> out_ = std::vector<float>(32);
};

TEST_F(WaitsForEither, EndWithTheOneThatCompletes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool copies : {false, true}) {
      ASSERT_EQ(Error({.copies = copies, .arrives = !copies, .reads_copied = copies}, seed), "");
      for (unsigned t = 2; t < out_.size(); ++t) EXPECT_EQ(out_[t], copies ? 7.0f : -1.0f);
    }
  }
}

TEST_F(WaitsForEither, WithAMistakeAreFound) {
  EXPECT_THAT(Error({}, 1), AllOf(HasSubstr("phase 0 completes neither of the barrier at"),
                                  ContainsRegex("copy_kernels.cc:[0-9]+")));
  EXPECT_THAT(Error({.arrives = true, .phase = 1}, 1),
              HasSubstr("allowed: this one or the one before it"));
}

// Both complete: which of the two a thread has waited for it does not know.
TEST_F(WaitsForEither, DoNotOrderWhatTheOtherOneBrings) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  const auto errors = [&](bool reads_copied) {
    std::string all;
    for (uint64_t seed = 1; seed <= 50; ++seed)
      all += Error({.copies = true, .arrives = true, .reads_copied = reads_copied}, seed);
    return all;
  };
  EXPECT_THAT(errors(/*reads_copied=*/true), HasSubstr("copy in flight to"));
  EXPECT_THAT(errors(/*reads_copied=*/false), HasSubstr("race on"));
}

// ---- tiles of matrices ----

using TileMistake = TileArgs::Mistake;

// Elements are numbered as they lie; nothing of a tile lies beyond `data`.
class Tiles : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 21, kColumns = 80, kLayers = 3;

  Tiles() : data_(kLayers * kRows * kColumns) {
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<uint16_t>(i + 1);
  }
  // Rows of the first layer, 64 columns of 16 of them at once.
  runtime::TiledMatrix Rows() const {
    return {.data = data_.data(),
            .rank = 2,
            .sizes = {kColumns, kRows},
            .tile = {64, 16},
            .strides = {0, kColumns * 2},
            .swizzled = true};
  }
  // 16 columns of two rows of two layers, the layers of a row after each other.
  runtime::TiledMatrix Layers() const {
    return {.data = data_.data(),
            .rank = 4,
            .sizes = {8, kColumns / 8, kLayers, kRows},
            .tile = {8, 2, 2, 2},
            .strides = {0, 16, kRows * kColumns * 2, kColumns * 2}};
  }
  std::string ErrorIn(const runtime::TiledMatrix& matrix, const std::vector<int32_t>& at,
                      TileMistake mistake = TileMistake::kNone, uint64_t seed = 1) {
    emulator::SetScheduleSeed(seed);
    TileArgs args{.rank = static_cast<int>(at.size()), .mistake = mistake};
    const auto map = runtime::MapTiles(runtime::DeviceKind::kHost, matrix);
    if (!map.ok()) return std::string(map.status().message());
    args.map = *map;
    std::copy(at.begin(), at.end(), args.at);
    args.elements = 1;
    for (int i = 0; i < matrix.rank; ++i) args.elements *= static_cast<uint32_t>(matrix.tile[i]);
    out_.assign(args.elements, 0xffff);
    args.out = out_.data();
    return ErrorOf(&CopyTileOut, &args,
                   {.threads = 64, .warp_size = 32, .shared_bytes = args.elements * 2 + 2048});
  }
  uint16_t Element(int64_t layer, int64_t row, int64_t column) const {
    const bool inside = layer < kLayers && row < kRows && column < kColumns;
    return inside ? data_[static_cast<size_t>((layer * kRows + row) * kColumns + column)] : 0;
  }
  std::vector<uint16_t> data_, out_;
};

TEST_F(Tiles, LandSwizzledAndZeroBeyondTheMatrix) {
  for (const auto& [column, row] :
       {std::pair{0, 0}, std::pair{64, 3}, std::pair{16, 16}, std::pair{72, 21}}) {
    ASSERT_EQ(ErrorIn(Rows(), {column, row}), "");
    for (int r = 0; r < 16; ++r)
      for (int c = 0; c < 64; ++c)
        ASSERT_EQ(out_[static_cast<size_t>(r * 64 + ((c / 8) ^ (r % 8)) * 8 + c % 8)],
                  Element(0, row + r, column + c))
            << "row " << r << ", column " << c << " of the tile at " << row << ", " << column;
  }
}

TEST_F(Tiles, OfFourDimensionsLandOneAfterTheOther) {
  for (const auto& [chunk, layer, row] :
       {std::tuple{0, 0, 0}, std::tuple{9, 1, 5}, std::tuple{3, 2, 19}, std::tuple{2, 1, 20}}) {
    ASSERT_EQ(ErrorIn(Layers(), {0, chunk, layer, row}), "");
    size_t i = 0;
    for (int r = 0; r < 2; ++r)
      for (int l = 0; l < 2; ++l)
        for (int c = 0; c < 16; ++c)
          ASSERT_EQ(out_[i++], Element(layer + l, row + r, chunk * 8 + c))
              << "row " << row + r << ", layer " << layer + l << ", column " << c;
  }
}

TEST_F(Tiles, CopiedToOrFromWhereTheyMustNotAreFound) {
  EXPECT_THAT(ErrorIn(Rows(), {0, 0}, TileMistake::kUnaligned), HasSubstr("to multiples of 1024"));
  EXPECT_THAT(ErrorIn(Layers(), {0, 0, 0, 0}, TileMistake::kUnaligned),
              HasSubstr("to multiples of 128"));
  EXPECT_THAT(ErrorIn(Rows(), {0, 0}, TileMistake::kNegative),
              HasSubstr("from elements that are not negative"));
  EXPECT_THAT(ErrorIn(Rows(), {0, 0, 0, 0}),
              HasSubstr("CopyTile of a matrix of rank 2 to dynamic shared memory"));
}

TEST_F(Tiles, WithOneMistakeAreFoundInAnySchedule) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    for (const TileMistake mistake : {TileMistake::kNoWait, TileMistake::kTooFewBytes})
      EXPECT_THAT(ErrorIn(Rows(), {0, 0}, mistake, seed), ::testing::Not(""))
          << static_cast<int>(mistake) << " with seed " << seed;
  }
}

}  // namespace
}  // namespace reprise::testing
