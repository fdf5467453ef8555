// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/kernels/attention_fixture.h"

namespace reprise::testing {
namespace {

TEST_P(AttentionTest, RefusesDevicesWithoutRoomForARow) {
  AttentionArgs args;
  args.num_heads = args.kv.num_kv_heads = args.kv.block_size = args.max_splits = 1;
  args.kv.head_dim = 64;
  args.kv.dtype = dtype();
  for (const AttentionPhase phase : {AttentionPhase::kDecode, AttentionPhase::kPrefill}) {
    for (const size_t bytes : {0, 1023, 1675}) {
      LimitSharedBytes(bytes);
      EXPECT_THAT(
          Attention(stream(), planned_kernels(), args, phase, AttentionCandidate::kPortable),
          StatusIs(absl::StatusCode::kFailedPrecondition,
                   "one query row of head_dim 64 takes 1676 bytes of shared memory"));
    }
  }
}

TEST_P(AttentionTest, NaiveRefusesDevicesWithoutRoomForARow) {
  AttentionArgs args;
  args.num_heads = args.kv.num_kv_heads = args.kv.block_size = args.max_splits = 1;
  args.kv.head_dim = 64;
  args.kv.dtype = dtype();
  LimitSharedBytes(9471);
  EXPECT_THAT(Attention(stream(), planned_kernels(), args, AttentionPhase::kDecode,
                        AttentionCandidate::kNaive),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "one query row of head_dim 64 takes 9472 bytes of shared memory"));
}

TEST_P(AttentionTest, RefusesToMergeWhatLeavesNoPartialResults) {
  AttentionArgs args;
  args.num_heads = args.kv.num_kv_heads = args.kv.block_size = args.max_splits = 1;
  args.kv.head_dim = 64;
  args.kv.dtype = dtype();
  EXPECT_THAT(AttentionMerge(stream(), kernels(), args, AttentionCandidate::kNaive),
              StatusIs(absl::StatusCode::kFailedPrecondition, "a merge for the naive candidate"));
  const kernels::DecodeShare share{};
  args.shares = &share;
  EXPECT_THAT(AttentionMerge(stream(), kernels(), args),
              StatusIs(absl::StatusCode::kFailedPrecondition, "a merge for decode shares"));
}

TEST_P(AttentionTest, RefusesADealWithoutAKernelForIt) {
  const kernels::DecodeShare share{};
  AttentionArgs args;
  args.num_heads = 9;
  args.max_splits = 1;
  args.shares = &share;
  args.kv = {.num_kv_heads = 1, .head_dim = 128, .block_size = 16, .dtype = dtype()};
  EXPECT_EQ(NumDecodeShares(kernels(), args.num_heads, args.kv), 0u);  // a group of 9
  EXPECT_THAT(Attention(stream(), kernels(), args, AttentionPhase::kDecode),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "decode shares for 9 heads over 1 of dimension 128"));
}

TEST_P(AttentionTest, RefusesImpossibleShapes) {
  AttentionArgs good;
  good.num_heads = 4;
  good.kv.num_kv_heads = 2;
  good.kv.head_dim = 64;
  good.kv.block_size = 16;
  good.kv.dtype = dtype();
  good.max_splits = 1;
  const auto launch = [&](const AttentionArgs& args) {
    return Attention(stream(), kernels(), args, AttentionPhase::kDecode);
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  AttentionArgs args = good;
  args.num_heads = 5;
  EXPECT_THAT(launch(args), StatusIs(kInvalid, "num_heads is 5"));
  args = good;
  args.kv.num_kv_heads = 0;
  EXPECT_THAT(launch(args), StatusIs(kInvalid, "num_kv_heads is 0"));
  args = good;
  args.kv.block_size = 0;
  EXPECT_THAT(launch(args), StatusIs(kInvalid, "block_size is 0"));
  for (const float softcap : {-1.0f, INFINITY, NAN}) {
    args = good;
    args.softcap = softcap;
    EXPECT_THAT(launch(args), StatusIs(kInvalid, absl::StrCat("softcap is ", softcap,
                                                              "; allowed: 0 (none) and")));
  }
  args = good;
  args.kv.head_dim = 264;
  EXPECT_THAT(launch(args), StatusIs(absl::StatusCode::kUnimplemented, "head_dim is 264"));
  for (const DType other : {DType::kF32, DType::kBf16, DType::kF16}) {
    if (other == dtype()) continue;
    args = good;
    args.kv.dtype = other;
    const std::string got(runtime::NameOf(other)), allowed(runtime::NameOf(dtype()));
    EXPECT_THAT(launch(args),
                StatusIs(absl::StatusCode::kUnimplemented,
                         absl::StrCat("attention: KV is ", got, " with activations of ", allowed,
                                      "; allowed: ", allowed)));
  }
}

}  // namespace
}  // namespace reprise::testing
