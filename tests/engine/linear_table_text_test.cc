// SPDX-License-Identifier: Apache-2.0
// The text of linear tables: what is read is what was written, and what is refused.
#include "engine/linear_table_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/linear/instances.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::nlohmann::json;
using ::reprise::testing::StatusIs;

const kernels::KernelInstance* Kernel(std::string_view symbol) {
  for (const kernels::KernelInstance& instance : kernels::kLinearInstances)
    if (instance.symbol == symbol) return &instance;
  ADD_FAILURE() << "no kernel " << symbol;
  return nullptr;
}

NamedLinearTable Table() {
  return {.device = "NVIDIA H200",
          .dtype = runtime::DType::kBf16,
          .table = {{.out_features = 4096,
                     .in_features = 14336,
                     .first_rows = 1,
                     .last_rows = 2,
                     .kernel = Kernel("reprise_linear_stream_bf16_8")},
                    {.out_features = 4096,
                     .in_features = 14336,
                     .first_rows = 9,
                     .last_rows = 16,
                     .kernel = Kernel("reprise_linear_group_bf16_32")},
                    {.out_features = 4096,
                     .in_features = 14336,
                     .group_size = 64,
                     .first_rows = 3,
                     .last_rows = 3,
                     .kernel = Kernel("reprise_linear_group_int4_bf16_16")}}};
}

json Text() { return json::parse(LinearTableText(Table())); }

TEST(LinearTableText, IsReadAsItWasWritten) {
  const std::string text = LinearTableText(Table(), R"({"made_by": {"host": "here"}})");
  ASSERT_OK_AND_ASSIGN(const NamedLinearTable read, ParseLinearTable(text));
  EXPECT_EQ(read.device, "NVIDIA H200");
  EXPECT_EQ(read.dtype, runtime::DType::kBf16);
  EXPECT_EQ(read.table, Table().table);
  EXPECT_EQ(LinearTableText(read), LinearTableText(Table()));
  const json written = json::parse(text);
  EXPECT_EQ(written["schema"], "reprise-linear-table/1");
  EXPECT_EQ(written["notes"]["made_by"]["host"], "here");
  ASSERT_EQ(written["layers"].size(), 2u);
  EXPECT_EQ(written["layers"][0]["kernels"].size(), 2u);
  EXPECT_EQ(written["layers"][1]["weights"], "int4");
  EXPECT_EQ(written["layers"][1]["group_size"], 64);
}

TEST(LinearTableText, MayHaveNoEntries) {
  NamedLinearTable none = Table();
  none.table.clear();
  ASSERT_OK_AND_ASSIGN(const NamedLinearTable read, ParseLinearTable(LinearTableText(none)));
  EXPECT_TRUE(read.table.empty());
}

TEST(LinearTableText, RefusesWhatItDoesNotKnow) {
  const auto says = [](const char* place, json value, const std::string& message) {
    json text = Text();
    text[json::json_pointer(place)] = std::move(value);
    EXPECT_THAT(ParseLinearTable(text.dump()).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, message))
        << place;
  };
  EXPECT_THAT(ParseLinearTable("{").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "linear table"));
  EXPECT_THAT(ParseLinearTable("[]").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "linear table"));
  EXPECT_THAT(ParseLinearTable(std::string(kMaxLinearTableBytes + 1, ' ')).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "bytes, allowed"));
  says("/schema", "reprise-attention-tree/1",
       "linear table: schema: got \"reprise-attention-tree/1\", allowed "
       "\"reprise-linear-table/1\"");
  says("/more", 1, "linear table: the text: got key \"more\", allowed schema, made_for, layers");
  says("/made_for", 1, "linear table: made_for: got 1, allowed an object");
  says("/made_for/device", "", "linear table: made_for.device: got \"\", allowed the name of");
  says("/made_for/dtype", "fp8_e4m3", "made_for.dtype: got \"fp8_e4m3\", allowed bf16, f16, f32");
  says("/layers", json::object(), "linear table: layers: got {}, allowed an array of 0 to 256");
  says("/layers/1", 5, "linear table: layers[1]: got 5, allowed an object");
  says("/layers/1/weights", "int8",
       "linear table: layers[1].weights: got \"int8\", allowed bf16, f16, f32, fp8_e4m3, int4, "
       "fp8_e4m3_rounded");
  says("/layers/1/group_size", 16, "layers[1].group_size: got 16, allowed 32, 64, 128 with int4");
  says("/layers/0/group_size", 64, "layers[0].group_size: got 64, allowed 0 with bf16");
  says("/layers/0/out_features", 0, "layers[0].out_features: got 0");
  says("/layers/0/in_features", 1.5, "layers[0].in_features: got 1.5");
  says("/layers/0/shape", "o", "layers[0]: got key \"shape\"");
  says("/layers/0/kernels", json::array(),
       "layers[0].kernels: got [], allowed an array of 1 to 64");
  says("/layers/0/kernels/1/more", 1, "layers[0].kernels[1]: got key \"more\"");
}

TEST(LinearTableText, RefusesRowsOutOfOrder) {
  const auto says = [](const char* place, json value, const std::string& message) {
    json text = Text();
    text[json::json_pointer(place)] = std::move(value);
    EXPECT_THAT(ParseLinearTable(text.dump()).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, message))
        << place;
  };
  says("/layers/0/kernels/0/rows_from", 0, "layers[0].kernels[0].rows_from: got 0");
  says("/layers/0/kernels/0/rows_to", 0, "layers[0].kernels[0].rows_to: got 0");
  // They touch, and the second lies before the first.
  says("/layers/0/kernels/1/rows_from", 2, "layers[0].kernels[1].rows_from: got 2");
  says("/layers/0/kernels/1/rows_from", 1, "layers[0].kernels[1].rows_from: got 1");
  says("/layers/0/kernels/1/rows_to", 8, "layers[0].kernels[1].rows_to: got 8");
  json twice = Text();
  twice["layers"].push_back(twice["layers"][0]);
  EXPECT_THAT(ParseLinearTable(twice.dump()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "layers[2]: got 4096x14336 of bf16 again, allowed each shape"));
}

// The kernel says what it reads; a table that says otherwise is of another program, or mixed up.
TEST(LinearTableText, RefusesKernelsOfOtherWeightsAndActivations) {
  for (const char* kernel :
       {"reprise_linear_stream_bf16_9", "linear_stream", "", "reprise_linear_stream_f16_8",
        "reprise_linear_group_int4_bf16_16", "reprise_rms_norm_bf16"}) {
    json text = Text();
    text["layers"][0]["kernels"][0]["kernel"] = kernel;
    EXPECT_THAT(ParseLinearTable(text.dump()).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "linear table: layers[0].kernels[0].kernel: got"))
        << kernel;
  }
  json f16 = Text();
  f16["made_for"]["dtype"] = "f16";
  EXPECT_THAT(ParseLinearTable(f16.dump()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no kernel of f16 reads bf16"));
}

TEST(LinearTableText, IsForTheDeviceAndTypeThatItNames) {
  const NamedLinearTable table = Table();
  EXPECT_OK(CheckTableSite(table, "NVIDIA H200", runtime::DType::kBf16));
  EXPECT_THAT(CheckTableSite(table, "NVIDIA H100", runtime::DType::kBf16),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "linear table: made for device 'NVIDIA H200', got 'NVIDIA H100'; allowed: "
                       "a table that was made for this"));
  EXPECT_THAT(CheckTableSite(table, "NVIDIA H200", runtime::DType::kF16),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "linear table: made for dtype 'bf16', got 'f16'"));
}

}  // namespace
}  // namespace reprise::engine
