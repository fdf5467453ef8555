// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/cases/embedding_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::EmbeddingArgs;
using kernels::EmbeddingCase;
using runtime::DType;

// Rows of arrays beyond the live ones hold an impossible id.
constexpr uint32_t kImpossible = 0xffffffffu;

using EmbeddingTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(EmbeddingTest);

std::vector<double> InverseFrequencies(int half_dim, int still) {
  std::vector<double> f;
  for (int i = 0; i < half_dim - still; ++i)
    f.push_back(RoundTo(DType::kF32, std::pow(500000.0, -static_cast<double>(i) / half_dim)));
  f.resize(static_cast<size_t>(half_dim), 0.0);
  return f;
}

TEST_P(EmbeddingTest, MatchesTheOracleAndTouchesNothingElse) {
  for (const EmbeddingCase& c : kernels::kEmbeddingCases) {
    SCOPED_TRACE(c.name);
    Random random(c.vocab + c.tokens);
    const size_t hidden = static_cast<size_t>(c.hidden);
    const std::vector<double> table = random.Tensor(dtype(), c.vocab * hidden);
    const std::vector<double> frequency = InverseFrequencies(c.half_dim, c.still);
    std::vector<uint32_t> id(c.tokens), position(c.tokens);
    for (uint32_t& i : id) i = random.Below(c.vocab);
    for (uint32_t& p : position) p = random.Below(1u << random.Below(18));
    if (c.tokens > 1) id[1] = c.vocab - 1;

    const Expected out = OracleEmbedding(table, hidden, id, c.multiplier);
    const Expected rope = OracleRopeTable(position, frequency, c.rope_multiplier);
    id.resize(c.max_tokens, kImpossible);
    position.resize(c.max_tokens, kImpossible);

    for (const bool packed : {false, true}) {
      if (packed && dtype() == DType::kF32) continue;
      GuardedMemory memory(device(), stream());
      EmbeddingArgs args;
      args.packed = packed ? 1 : 0;
      args.table =
          memory.ConstantTensor(dtype(), packed ? Packed(table, c.vocab, hidden, 96.0) : table);
      args.out = memory.Poisoned(c.max_tokens * hidden * SizeOf(dtype()));
      args.token_id = memory.Constant(id);
      args.token_position = memory.Constant(position);
      args.num_tokens = memory.Constant(std::vector<uint32_t>{c.tokens});
      args.inverse_frequency =
          static_cast<const float*>(memory.ConstantTensor(DType::kF32, frequency));
      args.rope = memory.Poisoned<float>(c.max_tokens * frequency.size() * 2);
      args.hidden = c.hidden;
      args.half_dim = c.half_dim;
      args.multiplier = c.multiplier;
      args.rope_multiplier = c.rope_multiplier;
      ASSERT_OK(Embedding(stream(), kernels(), args, c.max_tokens));
      memory.Check();
      ExpectNear(memory.ReadTensor(dtype(), args.out), out, dtype());
      ExpectNear(memory.ReadTensor(DType::kF32, args.rope), rope, DType::kF32);
    }
  }
}

TEST_P(EmbeddingTest, RefusesImpossibleShapes) {
  EmbeddingArgs args;
  args.hidden = 8;
  EXPECT_THAT(Embedding(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_tokens is 0"));
  args.hidden = 0;
  EXPECT_THAT(Embedding(stream(), kernels(), args, 1), StatusIs(kInvalid, "hidden is 0"));
}

}  // namespace
}  // namespace reprise::testing
