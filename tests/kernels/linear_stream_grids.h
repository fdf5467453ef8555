// SPDX-License-Identifier: Apache-2.0
// Kernels of linear_stream, launched directly in grids of many sizes.
#ifndef REPRISE_TESTS_KERNELS_LINEAR_STREAM_GRIDS_H_
#define REPRISE_TESTS_KERNELS_LINEAR_STREAM_GRIDS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/kernel_instance.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/packed_layout.h"
#include "runtime/device.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {

// A block for each tile takes none from the counter; few blocks take most of them there. By the
// kernel ahead more or less is requested at once. Expects the same bytes, out_bytes of them, from
// launch after launch of the family's kernel for so many rows, and of the next one where that is
// for few, and that counters are left at 0. held: what the output holds before, of adds_to_out.
inline void ExpectEveryGridHasTheBits(runtime::Stream& stream, GuardedMemory& memory,
                                      const kernels::KernelSet& kernels,
                                      const kernels::KernelFamily& family, uint32_t rows,
                                      kernels::LinearArgs linear, size_t out_bytes,
                                      const std::vector<std::byte>& held = {}) {
  const auto tiles = static_cast<unsigned>(
      kernels::PackedLayout{linear.out_features, linear.in_features}.OutputTiles());
  std::vector<std::byte> expected;
  const bool few = rows <= kernels::kStreamFewTokens;
  const int own = few ? kernels::kStreamFewTokens : rows <= 8 ? 8 : 16;
  for (const int tokens : few ? std::vector<int>{own, 8} : std::vector<int>{own}) {
    const kernels::LoadedKernel& kernel = kernels.Get(family, tokens);
    for (const unsigned grid : {tiles, 1u, 3u, 7u}) {
      SCOPED_TRACE(absl::StrCat(linear.in_features, " inputs, ", linear.scale_inputs,
                                " of a scale, tokens ", tokens, ", blocks ", grid));
      for (const int early : {-1, 0, 1, 2}) {  // -1: nothing is requested before it has waited
        linear.out = held.empty() ? memory.Poisoned(out_bytes) : memory.Variable(held);
        linear.reads_ahead = early >= 0;
        linear.ahead = static_cast<kernels::KernelAhead>(std::max(early, 0));
        ASSERT_OK(stream.Launch(kernel.kernel,
                                {.grid_x = grid,
                                 .block = kernel.threads,
                                 .shared_bytes = kernels::StreamLayoutOf(*kernel.instance).bytes},
                                linear));
        memory.Check();
        for (const uint32_t counter : memory.Read(linear.counters)) EXPECT_EQ(counter, 0u);
        const std::vector<std::byte> bytes = memory.ReadBytes(linear.out);
        if (expected.empty()) expected = bytes;
        EXPECT_EQ(bytes, expected);
      }
    }
  }
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_LINEAR_STREAM_GRIDS_H_
