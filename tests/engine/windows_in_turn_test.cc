// SPDX-License-Identifier: Apache-2.0
// Layers of one model whose sliding windows differ, through the whole step program, against the
// oracle in double: prompts and decoded tokens whose contexts outgrow the window, rows of several
// lengths side by side. That a row's bits are its own there is models_test.cc's.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/logits_comparison.h"
#include "tests/testing/decoder_oracle.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_probe.h"
#include "tests/testing/tiny_model.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DType;
using ::reprise::runtime::MatrixUnit;
using ::reprise::testing::DecoderOracle;
using ::reprise::testing::KernelTestParam;
using ::reprise::testing::Logits;
using ::reprise::testing::LogitsComparison;
using ::reprise::testing::LogitsTolerance;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StepProbe;
using ::reprise::testing::TinyModelOptions;

// Heads of 64 in blocks of 16 tokens are those of every decode kernel, bulk copies included.
std::vector<TinyModelOptions> Models() {
  return {{.architecture = "ministral",
           .hidden_size = 64,
           .num_layers = 4,
           .head_dim = 64,
           .sliding_window = 13,
           .slides = {false, true, true, false}},
          {.architecture = "qwen2", .sliding_window = 20, .slides = {true, false}},
          {.architecture = "qwen3", .sliding_window = 1, .slides = {false, true}},
          // Scores are capped.
          {.architecture = "gemma2",
           .hidden_size = 64,
           .head_dim = 64,
           .sliding_window = 13,
           .slides = {true, false}},
          // Layers that slide turn otherwise.
          {.architecture = "gemma3", .sliding_window = 20, .slides = {true, false}},
          // Sinks, and experts with biases and a limit. All of them count: a choice between two
          // that are nearly alike may fall otherwise in bf16.
          {.architecture = "gpt_oss",
           .hidden_size = 64,
           .head_dim = 64,
           .attention_bias = true,
           .sliding_window = 13,
           .slides = {true, false},
           .num_experts = 3,
           .experts_per_token = 3},
          {.architecture = "gpt_oss",
           .intermediate_size = 64,
           .sliding_window = 20,
           .slides = {true, false},
           .num_experts = 3,
           .experts_per_token = 3,
           .mxfp4_experts = true}};
}

class WindowsInTurnTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override {
    auto device = testing::MakeTestDevice(GetParam());
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    device_ = *std::move(device);
  }

  // A step of so many tokens of each row that has any left, all side by side, until no row has;
  // what they sampled beside what the oracle says of the same positions.
  void Compare(StepProbe& probe, const std::vector<std::vector<uint32_t>>& rows,
               const std::vector<Logits>& want, const std::vector<size_t>& chunks,
               LogitsComparison* comparison) {
    std::vector<size_t> done(rows.size(), 0);
    for (size_t step = 0;; ++step) {
      std::vector<testing::StepDraft::Chunk> parts;
      std::vector<const std::vector<float>*> expected;
      for (uint32_t r = 0; r < rows.size(); ++r) {
        const size_t end = std::min(done[r] + (step == 0 ? chunks[r] : 1), rows[r].size());
        if (end == done[r]) continue;
        const auto begin = rows[r].begin();
        parts.push_back({.row = r,
                         .tokens = {begin + static_cast<ptrdiff_t>(done[r]),
                                    begin + static_cast<ptrdiff_t>(end)}});
        expected.push_back(&want[r][end - 1]);
        done[r] = end;
      }
      if (parts.empty()) return;
      ASSERT_OK_AND_ASSIGN(const Logits got, probe.Run(parts));
      for (size_t i = 0; i < got.size(); ++i) comparison->Add(got[i], *expected[i]);
    }
  }

  std::unique_ptr<runtime::Device> device_;
  testing::TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(EveryDevice, WindowsInTurnTest,
                         ::testing::Values(KernelTestParam{DeviceKind::kHost, DType::kF32},
                                           KernelTestParam{DeviceKind::kHost, DType::kBf16},
                                           KernelTestParam{DeviceKind::kHost, DType::kF16},
                                           KernelTestParam{DeviceKind::kCuda, DType::kF32},
                                           KernelTestParam{DeviceKind::kCuda, DType::kBf16},
                                           KernelTestParam{DeviceKind::kCuda, DType::kF16}),
                         testing::NameOfParam);
#if REPRISE_WITH_EMULATOR
INSTANTIATE_TEST_SUITE_P(
    Emulated, WindowsInTurnTest,
    ::testing::Values(KernelTestParam{.dtype = DType::kBf16, .emulated = MatrixUnit::kMma},
                      KernelTestParam{.dtype = DType::kBf16, .emulated = MatrixUnit::kMfma},
                      KernelTestParam{.dtype = DType::kBf16, .emulated = MatrixUnit::kWmma}),
    testing::NameOfParam);
#endif

TEST_P(WindowsInTurnTest, LogitsMatchTheOracle) {
  // A prompt and decoded tokens; a row that begins with one token; a prompt within the window.
  const std::vector<std::vector<uint32_t>> rows = {RandomPrompt(1, 45), RandomPrompt(2, 27),
                                                   RandomPrompt(3, 11)};
  for (TinyModelOptions model : Models()) {
    SCOPED_TRACE(model.architecture);
    model.dtype = GetParam().dtype;  // of the weights: nothing is rounded on the way in
    ASSERT_OK_AND_ASSIGN(const std::string path,
                         WriteTinyModel(model, directory_.path() + "/" + model.architecture +
                                                   (model.mxfp4_experts ? "-mxfp4" : "")));
    ASSERT_OK_AND_ASSIGN(const auto oracle, DecoderOracle::Open(path));
    std::vector<Logits> want, others;
    for (const auto& row : rows) want.push_back(oracle->Logits(row));
    // The other layers slide: what takes one layer for another is seen.
    oracle->spec().slides.flip();
    for (const auto& row : rows) others.push_back(oracle->Logits(row));
    LogitsComparison apart;
    for (size_t i = 25; i < rows[0].size(); ++i) apart.Add(others[0][i], want[0][i]);
    EXPECT_GT(apart.relative(), 5 * LogitsTolerance(DType::kBf16));

    ASSERT_OK_AND_ASSIGN(const auto probe, StepProbe::Create(*device_, {.directory = path,
                                                                        .dtype = GetParam().dtype,
                                                                        .max_context_length = 64}));
    LogitsComparison all;
    ASSERT_NO_FATAL_FAILURE(Compare(*probe, rows, want, {38, 1, 7}, &all));
    EXPECT_EQ(all.num_rows(), 8 + 27 + 5);
    EXPECT_LT(all.relative(), LogitsTolerance(GetParam().dtype));
  }
}

}  // namespace
}  // namespace reprise::engine
