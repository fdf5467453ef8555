// SPDX-License-Identifier: Apache-2.0
// The ops of Mamba-2 layers against the oracle, and what a row may count on: its bits and its state
// depend neither on how its tokens are cut into steps nor on who runs beside it, and state that was
// there before its first token does not count.
#include "kernels/mamba/mamba.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/testing/cases/mamba_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::MambaCase;
using kernels::MambaCaseRow;
using kernels::MambaConvArgs;
using kernels::MambaNormArgs;
using kernels::MambaRows;
using kernels::MambaScanArgs;
using runtime::DType;

using Values = std::vector<double>;

// Sizes that follow from a case's.
size_t InnerOf(const MambaCase& c) {
  return static_cast<size_t>(c.num_heads) * static_cast<size_t>(c.head_dim);
}
size_t ChannelsOf(const MambaCase& c) {
  return InnerOf(c) + 2 * static_cast<size_t>(c.num_groups * c.state_size);
}
size_t ProjectedOf(const MambaCase& c) {
  return InnerOf(c) + ChannelsOf(c) + static_cast<size_t>(c.num_heads);
}

class MambaTest : public KernelTest {
 protected:
  // The plan of these rows, in slots from the last one down.
  MambaRows RowsOf(GuardedMemory& memory, const MambaCase& c) const {
    std::vector<kernels::RowEntry> entries(c.max_rows);
    std::vector<uint32_t> start(c.max_rows + 1, 0xffffffffu), before(c.max_rows, 0xffffffffu);
    start[0] = 0;
    for (uint32_t e = 0; e < c.rows.size(); ++e) {
      entries[e].slot = SlotOf(c, e);
      start[e + 1] = start[e] + c.rows[e].tokens;
      before[e] = c.rows[e].has_state ? 7 : 0;
    }
    return {
        .num_rows = memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(c.rows.size())}),
        .entries = memory.Constant(entries),
        .query_start = memory.Constant(start),
        .context_before = memory.Constant(before)};
  }
  static uint32_t SlotOf(const MambaCase& c, uint32_t e) { return c.max_rows - 1 - e; }
  static size_t TokensOf(const MambaCase& c) {
    size_t tokens = 0;
    for (const MambaCaseRow& row : c.rows) tokens += row.tokens;
    return tokens;
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(MambaTest);

TEST_P(MambaTest, ConvolutionMatchesTheOracleAndKeepsTheLastInputs) {
  for (const MambaCase& c : kernels::kMambaCases) {
    SCOPED_TRACE(c.name);
    const size_t channels = ChannelsOf(c), projected = ProjectedOf(c), inner = InnerOf(c);
    const auto width = static_cast<size_t>(c.width);
    Random random(channels + 5);
    const Values in = random.Tensor(dtype(), TokensOf(c) * projected);
    const Values weight = random.Tensor(DType::kF32, channels * width, 0.5);
    const Values bias = random.Tensor(DType::kF32, channels, 0.5);
    const size_t of_slot = (width - 1) * channels;
    Values state = random.Tensor(dtype(), c.max_rows * of_slot);
    for (uint32_t e = 0; e < c.rows.size(); ++e)  // what must not count
      if (!c.rows[e].has_state)
        std::fill_n(state.begin() + static_cast<ptrdiff_t>(SlotOf(c, e) * of_slot), of_slot, NAN);

    GuardedMemory memory(device(), stream());
    MambaConvArgs args;
    args.projected = memory.ConstantTensor(dtype(), in);
    args.out = memory.Poisoned(TokensOf(c) * channels * SizeOf(dtype()));
    args.state = memory.VariableTensor(dtype(), state);
    args.weight = static_cast<const float*>(memory.ConstantTensor(DType::kF32, weight));
    if (c.conv_bias)
      args.bias = static_cast<const float*>(memory.ConstantTensor(DType::kF32, bias));
    args.rows = RowsOf(memory, c);
    args.projected_size = static_cast<int32_t>(projected);
    args.offset = static_cast<int32_t>(inner);
    args.channels = static_cast<int32_t>(channels);
    args.width = c.width;
    const auto max_tokens = static_cast<uint32_t>(TokensOf(c)) + 3;
    ASSERT_OK(MambaConv(stream(), kernels(), args, c.max_rows, max_tokens));
    memory.Check();
    const Values out = memory.ReadTensor(dtype(), args.out);
    const Values left = memory.ReadTensor(dtype(), args.state);

    Expected expected{Values(out.size()), Values(out.size())};
    size_t first = 0;
    for (uint32_t e = 0; e < c.rows.size(); ++e) {
      const size_t tokens = c.rows[e].tokens, slot = SlotOf(c, e) * of_slot;
      for (size_t ch = 0; ch < channels; ++ch) {
        Values x;  // all that there was
        for (size_t j = 0; j + 1 < width; ++j)
          x.push_back(c.rows[e].has_state ? state[slot + j * channels + ch] : 0.0);
        for (size_t t = 0; t < tokens; ++t) x.push_back(in[(first + t) * projected + inner + ch]);
        const Expected row = OracleMambaConv(x, std::span(weight).subspan(ch * width, width),
                                             c.conv_bias ? bias[ch] : 0.0, width - 1);
        for (size_t t = 0; t < tokens; ++t) {
          expected.value[(first + t) * channels + ch] = row.value[t];
          expected.slack[(first + t) * channels + ch] = row.slack[t];
        }
        if (tokens == 0) continue;
        for (size_t j = 0; j + 1 < width; ++j)
          ASSERT_EQ(left[slot + j * channels + ch], x[tokens + j]) << "row " << e;
      }
      first += tokens;
    }
    ExpectNear(out, expected, dtype());
    // Whoever did not run is as before.
    for (uint32_t slot = 0; slot < c.max_rows; ++slot) {
      bool ran = false;
      for (uint32_t e = 0; e < c.rows.size(); ++e) ran |= SlotOf(c, e) == slot && c.rows[e].tokens;
      for (size_t i = slot * of_slot; !ran && i < (slot + 1) * of_slot; ++i)
        ASSERT_EQ(left[i], state[i]) << "slot " << slot;
    }
  }
}

TEST_P(MambaTest, ScanMatchesTheOracleAndCarriesItsState) {
  for (const MambaCase& c : kernels::kMambaCases) {
    SCOPED_TRACE(c.name);
    const size_t channels = ChannelsOf(c), projected = ProjectedOf(c), tokens = TokensOf(c);
    const auto heads = static_cast<size_t>(c.num_heads), dim = static_cast<size_t>(c.head_dim);
    const auto size = static_cast<size_t>(c.state_size), groups = static_cast<size_t>(c.num_groups);
    Random random(channels + 11);
    const Values convolved = random.Tensor(dtype(), tokens * channels);
    // From steps of nearly nothing to long ones.
    const Values in = random.Tensor(dtype(), tokens * projected, 3.0);
    const Values a_log = random.Tensor(DType::kF32, heads), d = random.Tensor(DType::kF32, heads);
    const Values dt_bias = random.Tensor(DType::kF32, heads, 3.0);
    const size_t of_head = dim * size, of_slot = heads * of_head;
    Values state = random.Tensor(DType::kF32, c.max_rows * of_slot);
    for (uint32_t e = 0; e < c.rows.size(); ++e)
      if (!c.rows[e].has_state)
        std::fill_n(state.begin() + static_cast<ptrdiff_t>(SlotOf(c, e) * of_slot), of_slot, NAN);

    GuardedMemory memory(device(), stream());
    const auto floats = [&](const Values& values) {
      return static_cast<const float*>(memory.ConstantTensor(DType::kF32, values));
    };
    MambaScanArgs args;
    args.convolved = memory.ConstantTensor(dtype(), convolved);
    args.projected = memory.ConstantTensor(dtype(), in);
    args.y = memory.Poisoned(tokens * heads * dim * SizeOf(dtype()));
    args.state = static_cast<float*>(memory.VariableTensor(DType::kF32, state));
    args.a_log = floats(a_log);
    args.d = floats(d);
    args.dt_bias = floats(dt_bias);
    args.rows = RowsOf(memory, c);
    args.projected_size = static_cast<int32_t>(projected);
    args.num_heads = c.num_heads;
    args.head_dim = c.head_dim;
    args.num_groups = c.num_groups;
    args.state_size = c.state_size;
    args.min_dt = c.min_dt;
    args.max_dt = c.max_dt;
    ASSERT_OK(MambaScan(stream(), kernels(), args, c.max_rows,
                        std::max(c.max_rows, static_cast<uint32_t>(tokens))));
    memory.Check();
    const Values y = memory.ReadTensor(dtype(), args.y);
    const Values left = memory.ReadTensor(DType::kF32, args.state);

    Expected of_y{Values(y.size()), Values(y.size())}, of_state{state, Values(state.size())};
    size_t first = 0;
    for (uint32_t e = 0; e < c.rows.size(); ++e) {
      const size_t count = c.rows[e].tokens;
      for (size_t h = 0; count != 0 && h < heads; ++h) {
        const size_t at = SlotOf(c, e) * of_slot + h * of_head, group = h / (heads / groups);
        Expected own{Values(of_head, 0.0), Values(of_head, 0.0)};
        if (c.rows[e].has_state)
          std::copy_n(state.begin() + static_cast<ptrdiff_t>(at), of_head, own.value.begin());
        Values x, b, out, dt;
        for (size_t t = first; t < first + count; ++t) {
          const auto row = convolved.begin() + static_cast<ptrdiff_t>(t * channels);
          const auto take = [&](size_t begin, size_t n, Values& to) {
            to.insert(to.end(), row + static_cast<ptrdiff_t>(begin),
                      row + static_cast<ptrdiff_t>(begin + n));
          };
          take(h * dim, dim, x);
          take(heads * dim + group * size, size, b);
          take(heads * dim + (groups + group) * size, size, out);
          dt.push_back(in[t * projected + projected - heads + h]);
        }
        const Expected row = OracleMambaScan({.a_log = a_log[h],
                                              .d = d[h],
                                              .dt_bias = dt_bias[h],
                                              .min_dt = c.min_dt,
                                              .max_dt = c.max_dt},
                                             x, b, out, dt, &own);
        for (size_t t = 0; t < count; ++t)
          for (size_t p = 0; p < dim; ++p) {
            of_y.value[((first + t) * heads + h) * dim + p] = row.value[t * dim + p];
            of_y.slack[((first + t) * heads + h) * dim + p] = row.slack[t * dim + p];
          }
        std::copy(own.value.begin(), own.value.end(),
                  of_state.value.begin() + static_cast<ptrdiff_t>(at));
        std::copy(own.slack.begin(), own.slack.end(),
                  of_state.slack.begin() + static_cast<ptrdiff_t>(at));
      }
      first += count;
    }
    ExpectNear(y, of_y, dtype());
    ExpectNear(left, of_state, DType::kF32);
  }
}

TEST_P(MambaTest, GatedNormMatchesTheOracleInPlace) {
  for (const size_t size : {1u, 7u, 64u, 600u}) {
    const size_t live = 3, max = 5, projected = 2 * size + 9;
    Random random(size);
    const Values y = random.Tensor(dtype(), live * size, 2.0);
    const Values in = random.Tensor(dtype(), live * projected, 4.0);
    const Values weight = random.Tensor(dtype(), size);
    Values gate, all = y;
    for (size_t t = 0; t < live; ++t)
      gate.insert(gate.end(), in.begin() + static_cast<ptrdiff_t>(t * projected),
                  in.begin() + static_cast<ptrdiff_t>(t * projected + size));
    all.resize(max * size, NAN);
    GuardedMemory memory(device(), stream());
    MambaNormArgs args;
    args.out = memory.VariableTensor(dtype(), all);
    args.y = args.out;
    args.projected = memory.ConstantTensor(dtype(), in);
    args.weight = memory.ConstantTensor(dtype(), weight);
    args.num_tokens = memory.Constant(std::vector<uint32_t>{live});
    args.projected_size = static_cast<int32_t>(projected);
    args.size = static_cast<int32_t>(size);
    args.eps = 1e-5f;
    ASSERT_OK(MambaNorm(stream(), kernels(), args, max));
    memory.Check();
    ExpectNear(memory.ReadTensor(dtype(), args.out), OracleMambaNorm(y, gate, weight, 1e-5),
               dtype());
  }
}

// A row of 21 tokens in steps of other sizes, in another slot, beside other rows.
TEST_P(MambaTest, ARowsBitsDependNeitherOnItsChunksNorOnItsNeighbours) {
  constexpr uint32_t kTokens = 21;
  MambaCase c = {"", 4, 16, 2, 24, 4, true, 0.0f, 1e30f, {}, 3};
  const size_t channels = ChannelsOf(c), projected = ProjectedOf(c), inner = InnerOf(c);
  Random random(3);
  const Values own = random.Tensor(dtype(), kTokens * projected);
  const Values weight = random.Tensor(DType::kF32, channels * 4);
  const Values of_heads = random.Tensor(DType::kF32, 12);
  const auto run = [&](const std::vector<uint32_t>& chunks, uint32_t neighbours, Values* state) {
    const size_t conv_slot = 3 * channels, scan_slot = inner * 24;
    Values conv_state(3 * conv_slot, NAN), scan_state(3 * scan_slot, NAN), y;
    uint32_t done = 0;
    for (const uint32_t chunk : chunks) {
      c.rows.assign(neighbours, {chunk % 3 + 1, false});
      c.rows.push_back({chunk, done != 0});
      const size_t before = TokensOf(c) - chunk;
      Values in = random.Tensor(dtype(), before * projected);
      in.insert(in.end(), own.begin() + static_cast<ptrdiff_t>(done * projected),
                own.begin() + static_cast<ptrdiff_t>((done + chunk) * projected));
      GuardedMemory memory(device(), stream());
      const auto floats = [&](const Values& values) {
        return static_cast<const float*>(memory.ConstantTensor(DType::kF32, values));
      };
      MambaConvArgs conv;
      conv.projected = memory.ConstantTensor(dtype(), in);
      conv.out = memory.Poisoned(TokensOf(c) * channels * SizeOf(dtype()));
      conv.state = memory.VariableTensor(dtype(), conv_state);
      conv.weight = floats(weight);
      conv.rows = RowsOf(memory, c);
      conv.projected_size = static_cast<int32_t>(projected);
      conv.offset = static_cast<int32_t>(inner);
      conv.channels = static_cast<int32_t>(channels);
      conv.width = c.width;
      MambaScanArgs scan;
      scan.convolved = conv.out;
      scan.projected = conv.projected;
      scan.y = memory.Poisoned(TokensOf(c) * inner * SizeOf(dtype()));
      scan.state = static_cast<float*>(memory.VariableTensor(DType::kF32, scan_state));
      scan.a_log = floats(Values(of_heads.begin(), of_heads.begin() + 4));
      scan.d = floats(Values(of_heads.begin() + 4, of_heads.begin() + 8));
      scan.dt_bias = floats(Values(of_heads.begin() + 8, of_heads.end()));
      scan.rows = conv.rows;
      scan.projected_size = conv.projected_size;
      scan.num_heads = c.num_heads;
      scan.head_dim = c.head_dim;
      scan.num_groups = c.num_groups;
      scan.state_size = c.state_size;
      scan.max_dt = c.max_dt;
      EXPECT_OK(MambaConv(stream(), kernels(), conv, c.max_rows, kTokens + 6));
      EXPECT_OK(MambaScan(stream(), kernels(), scan, c.max_rows, kTokens + 6));
      memory.Check();
      conv_state = memory.ReadTensor(dtype(), conv.state);
      scan_state = memory.ReadTensor(DType::kF32, scan.state);
      const Values out = memory.ReadTensor(dtype(), scan.y);
      y.insert(y.end(), out.begin() + static_cast<ptrdiff_t>(before * inner), out.end());
      done += chunk;
    }
    const auto slot = static_cast<ptrdiff_t>(SlotOf(c, neighbours));
    const auto of_row = scan_state.begin() + slot * static_cast<ptrdiff_t>(scan_slot);
    state->assign(of_row, of_row + static_cast<ptrdiff_t>(scan_slot));
    return y;
  };
  Values whole, other;
  const Values y = run({kTokens}, 0, &whole);
  EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](double v) { return std::isfinite(v); }));
  for (const std::vector<uint32_t>& chunks :
       std::vector<std::vector<uint32_t>>{{1, 1, 19}, {8, 8, 5}, {7, 9, 1, 4}, {20, 1}}) {
    for (const uint32_t neighbours : {0u, 2u}) {
      EXPECT_EQ(run(chunks, neighbours, &other), y) << chunks.size() << " chunks";
      EXPECT_EQ(other, whole) << chunks.size() << " chunks";
    }
  }
}

TEST_P(MambaTest, RefusesImpossibleShapes) {
  MambaConvArgs conv{.projected_size = 8, .offset = 2, .channels = 4, .width = 4};
  EXPECT_THAT(MambaConv(stream(), kernels(), conv, 0, 1), StatusIs(kInvalid, "max_rows is 0"));
  EXPECT_THAT(MambaConv(stream(), kernels(), conv, 1, 0), StatusIs(kInvalid, "max_tokens is 0"));
  conv.width = 1;
  EXPECT_THAT(MambaConv(stream(), kernels(), conv, 1, 1), StatusIs(kInvalid, "width is 1"));
  conv.width = 4;
  conv.channels = 7;
  EXPECT_THAT(MambaConv(stream(), kernels(), conv, 1, 1),
              StatusIs(kInvalid, "projected_size is 8; allowed: at least 9"));
  MambaScanArgs scan{.projected_size = 8,
                     .num_heads = 4,
                     .head_dim = 2,
                     .num_groups = 3,
                     .state_size = 2,
                     .max_dt = 1.0f};
  EXPECT_THAT(MambaScan(stream(), kernels(), scan, 1, 1),
              StatusIs(kInvalid, "num_groups is 3; allowed: numbers that divide num_heads, 4"));
  scan.num_groups = 2;
  scan.head_dim = 129;
  EXPECT_THAT(MambaScan(stream(), kernels(), scan, 1, 1),
              StatusIs(kInvalid, "head_dim is 129; allowed: 1 to 128"));
  scan.head_dim = 2;
  scan.state_size = 260;
  EXPECT_THAT(MambaScan(stream(), kernels(), scan, 1, 1),
              StatusIs(kInvalid, "state_size is 260; allowed: 1 to 256"));
  scan.state_size = 66;
  EXPECT_THAT(MambaScan(stream(), kernels(), scan, 1, 1),
              StatusIs(kInvalid, "state_size is 66; allowed: 1 to 64, more where 4 divides it"));
  scan.state_size = 2;
  scan.min_dt = 2.0f;
  EXPECT_THAT(MambaScan(stream(), kernels(), scan, 1, 1),
              StatusIs(kInvalid, "min_dt is 2; allowed: 0 to max_dt, 1"));
  EXPECT_THAT(MambaNorm(stream(), kernels(), {.projected_size = 3, .size = 4}, 1),
              StatusIs(kInvalid, "projected_size is 3; allowed: at least 4"));
}

}  // namespace
}  // namespace reprise::testing
