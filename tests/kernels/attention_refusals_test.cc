// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/device/traits.h"
#include "tests/kernels/attention_fixture.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionCandidate;
using kernels::AttentionPhase;
using runtime::DType;

TEST(PortableAttention, PassesOfEveryHeadSizeFitEveryUnit) {
  using runtime::MatrixUnit;
  for (const MatrixUnit unit : {MatrixUnit::kMma, MatrixUnit::kMfma, MatrixUnit::kWmma}) {
    const auto shared = static_cast<size_t>(kernels::TraitsOf(unit).shared_bytes);
    for (int head_dim = 1; head_dim <= 256; ++head_dim) {
      for (const int rows : {1, 7, 64, 100}) {
        const int of_pass = kernels::PortableAttentionPassRows(rows, head_dim, shared);
        ASSERT_GE(of_pass, 1);
        ASSERT_LE(of_pass, rows);
        ASSERT_LE(static_cast<size_t>(of_pass) * kernels::PortableAttentionRowBytes(head_dim) +
                      kernels::kPortableStaticBytes,
                  shared)
            << head_dim;
      }
    }
  }
  // 64 KB hold 55 rows of head size 128 and 29 of 256; passes are filled evenly.
  EXPECT_EQ(kernels::PortableAttentionPassRows(64, 96, 64 << 10), 64);
  EXPECT_EQ(kernels::PortableAttentionPassRows(64, 128, 64 << 10), 32);
  EXPECT_EQ(kernels::PortableAttentionPassRows(64, 256, 64 << 10), 22);
  EXPECT_EQ(kernels::PortableAttentionPassRows(20, 256, 64 << 10), 20);
}

// The least that a launch looks at.
AttentionArgs OneHead(DType kv_dtype) {
  AttentionArgs args;
  args.num_heads = args.kv.num_kv_heads = args.kv.block_size = args.max_splits = 1;
  args.kv.head_dim = 64;
  args.kv.dtype = kv_dtype;
  return args;
}

TEST_P(AttentionTest, RefusesDevicesWithoutRoomForARow) {
  AttentionArgs args = OneHead(kv_dtype());
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
  AttentionArgs args = OneHead(dtype());
  LimitSharedBytes(9471);
  EXPECT_THAT(Attention(stream(), planned_kernels(), args, AttentionPhase::kDecode,
                        AttentionCandidate::kNaive),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "one query row of head_dim 64 takes 9472 bytes of shared memory"));
}

TEST_P(AttentionTest, RefusesToMergeWhatLeavesNoPartialResults) {
  AttentionArgs args = OneHead(dtype());
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
  args.kv = {.num_kv_heads = 1, .head_dim = 128, .block_size = 16, .dtype = kv_dtype()};
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
  good.kv.dtype = kv_dtype();
  good.max_splits = 1;
  const auto launch = [&](const AttentionArgs& args) {
    return Attention(stream(), kernels(), args, AttentionPhase::kDecode);
  };
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
                                      "; allowed: ", allowed, ", fp8")));
  }
  if (runtime::IsFp8(kv_dtype())) return;
  const float scale = 1.0f;
  args = good;
  args.scales.v = &scale;
  EXPECT_THAT(launch(args),
              StatusIs(kInvalid, absl::StrCat("attention: got scales for KV of ",
                                              std::string(runtime::NameOf(dtype())))));
}

}  // namespace
}  // namespace reprise::testing
