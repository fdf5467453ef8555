// SPDX-License-Identifier: Apache-2.0
#include "models/model_source.h"

#include <gtest/gtest.h>

#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::StatusIs;

TEST(ReadModelSpec, WantsExactlyOneSource) {
  using ::reprise::testing::kInvalid;
  EXPECT_THAT(ReadModelSpec({}), StatusIs(kInvalid, "exactly one"));
  EXPECT_THAT(ReadModelSpec({.directory = "/somewhere", .preset = "llama-3.2-1b"}),
              StatusIs(kInvalid, "/somewhere"));
  EXPECT_THAT(ReadModelSpec({.preset = "llama-9"}),
              StatusIs(absl::StatusCode::kNotFound, "llama-9"));
  ASSERT_OK_AND_ASSIGN(const ModelSpec preset, ReadModelSpec({.preset = "llama-3.2-1b"}));
  EXPECT_EQ(preset.name, "llama-3.2-1b");
  testing::TemporaryDirectory directory;
  EXPECT_THAT(ReadModelSpec({.directory = directory.path()}),
              StatusIs(absl::StatusCode::kNotFound, directory.path()));
  ASSERT_OK(testing::WriteTinyModel({.vocab_size = 61}, directory.path()));
  ASSERT_OK_AND_ASSIGN(const ModelSpec read, ReadModelSpec({.directory = directory.path()}));
  EXPECT_EQ(read.vocab_size, 61);
}

}  // namespace
}  // namespace reprise::models
