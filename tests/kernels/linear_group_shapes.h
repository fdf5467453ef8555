// SPDX-License-Identifier: Apache-2.0
// Kernels on products of warpgroups over narrow weights, in launches of many shapes, against bits
// that another kernel left.
#ifndef REPRISE_TESTS_KERNELS_LINEAR_GROUP_SHAPES_H_
#define REPRISE_TESTS_KERNELS_LINEAR_GROUP_SHAPES_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/weight_format.h"
#include "runtime/device.h"
#include "runtime/map_tiles.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {

// Launches of `family`, which reads weights of `format`, in shapes of every tile of tokens. linear:
// of one of them; its output is [max_rows, out_features] f32, and made anew for each. Expects the
// bytes `expected` of all of it.
inline void ExpectEveryGroupShapeHasTheBits(
    runtime::Device& device, runtime::Stream& stream, const kernels::KernelSet& kernels,
    GuardedMemory& memory, const kernels::KernelFamily& family, kernels::WeightFormat format,
    const kernels::LinearArgs& linear, uint32_t max_rows, const std::vector<std::byte>& expected) {
  const kernels::GroupFormat group_format(format);
  const int shared_bytes = kernels.traits().shared_bytes;
  kernels::LinearGroupArgs args{.linear = linear};
  if (format == kernels::WeightFormat::kE4m3Rounded) {
    args.linear.in_features /= 2;  // pairs
    args.linear.scale_inputs /= 2;
  }
  struct Shape {
    int tokens, span, chunks, columns;
  };
  for (const Shape& s :
       {Shape{16, 1, 2, 4}, Shape{16, 3, 4, 2}, Shape{16, 10, 2, 1}, Shape{16, 6, 2, 2},
        Shape{32, 2, 4, 5}, Shape{32, 5, 2, 2}, Shape{64, 4, 2, 2}, Shape{64, 1, 4, 3},
        Shape{64, 9, 2, 1}, Shape{128, 1, 2, 3}, Shape{128, 4, 2, 2}, Shape{128, 7, 2, 1}}) {
    SCOPED_TRACE(absl::StrCat(linear.in_features, " inputs, ", linear.scale_inputs,
                              " of a scale, tokens ", s.tokens, ", span ", s.span, ", chunks ",
                              s.chunks));
    if (s.span > kernels::LinearGroupMaxSpan(s.tokens, group_format)) continue;
    const kernels::LoadedKernel* const group = kernels.Find(family, s.tokens);
    ASSERT_NE(group, nullptr);
    args.linear.out = memory.Poisoned(expected.size());
    args.span = s.span;
    args.stage_chunks = s.chunks;
    args.copied_rows = s.tokens;
    args.whole_stages =
        kernels::LinearGroupCopiesWholeStages(s.tokens, s.tokens, args.linear.in_features) ? 1 : 0;
    const runtime::DeviceKind kind = device.kind();
    ASSERT_OK_AND_ASSIGN(args.tokens, MapTiles(kind, LinearGroupTokens(args, max_rows)));
    ASSERT_OK_AND_ASSIGN(args.weights, MapTiles(kind, LinearGroupWeights(args, group_format)));
    if (group_format.stage_scales) {
      ASSERT_OK_AND_ASSIGN(args.scales, MapTiles(kind, LinearGroupScales(args)));
    }
    ASSERT_OK(stream.Launch(group->kernel,
                            {.grid_x = static_cast<unsigned>(s.columns),
                             .block = group->threads,
                             .shared_bytes = kernels::LinearGroupSharedBytes(
                                 shared_bytes, s.tokens, s.span, s.chunks, group_format)},
                            args));
    memory.Check();
    EXPECT_EQ(memory.ReadBytes(args.linear.out), expected);
  }
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_LINEAR_GROUP_SHAPES_H_
