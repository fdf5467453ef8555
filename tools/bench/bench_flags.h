// SPDX-License-Identifier: Apache-2.0
// Options that commands which time something share (`bench ...`, `tune attention`): how counts and
// sizes are written, the heads of attention, where figures go.
#ifndef REPRISE_TOOLS_BENCH_BENCH_FLAGS_H_
#define REPRISE_TOOLS_BENCH_BENCH_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/model_source.h"
#include "nlohmann/json.hpp"
#include "runtime/dtype.h"
#include "tools/bench/attention_buffers.h"
#include "tools/bench/svg_chart.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/units.h"

namespace reprise::tools {

// The most rows of a batch, and tokens of a row.
inline constexpr uint64_t kMostBatchRows = 1u << 16;
inline constexpr uint64_t kMostRowTokens = 1u << 20;

// Parsers for AddOption. Errors: InvalidArgument with got and allowed.
inline auto UnsignedIn(uint64_t min, uint64_t max) {
  return [min, max](std::string_view text) { return ParseUnsigned(text, min, max); };
}
// One count, such as 32k.
absl::StatusOr<uint32_t> ParseCount(std::string_view text, uint64_t min, uint64_t max);
inline auto CountIn(uint64_t min, uint64_t max) {
  return [min, max](std::string_view text) { return ParseCount(text, min, max); };
}
// Counts from 1 on, such as 128,1k.
absl::StatusOr<std::vector<uint32_t>> ParseCounts(std::string_view text, uint64_t max);
// 1B to 1TiB.
absl::StatusOr<uint64_t> ParsePoolBytes(std::string_view text);

// Where figures go beside the tables.
struct OutputFlags {
  std::string json_file, svg_file;  // "": none
};
// `flags` must outlive `app`.
void AddOutputOptions(CLI::App* app, OutputFlags* flags);
// Usage error on a chart to stdout.
absl::Status CheckOutput(const OutputFlags& flags);
// PrepareRecord of both files.
absl::Status PrepareOutput(const OutputFlags& flags, Console* console);
// Errors: Unavailable names the file and the reason.
absl::Status WriteOutput(const OutputFlags& flags, const nlohmann::json& json, const Chart& chart,
                         Console* console);

// --rounds and --replays of benchmarks of graphs.
void AddRoundOptions(CLI::App* app, uint32_t* rounds, uint32_t* replays);

// Memory that the read bandwidth is measured over; 0: by device.
void AddBandwidthOption(CLI::App* app, uint64_t* bytes);

// A model's heads, or numbers.
struct HeadFlags {
  models::ModelSource source;
  std::optional<int32_t> num_heads, num_kv_heads, head_dim;
  std::optional<uint32_t> window;
  std::optional<runtime::DType> dtype, kv_dtype;
  int32_t block_size = AttentionShape().block_size;
};

// `flags` must outlive `app`.
void AddHeadOptions(CLI::App* app, HeadFlags* flags);

// The heads of a model where one is named; else those that were given, or Llama-3-8B's. Errors:
// usage where both were given; those of the model's config and of CheckShape.
absl::StatusOr<AttentionShape> ShapeOf(const HeadFlags& flags);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_BENCH_FLAGS_H_
