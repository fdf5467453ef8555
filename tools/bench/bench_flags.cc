// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_flags.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/engine_flags.h"
#include "tools/record.h"

namespace reprise::tools {

absl::StatusOr<uint32_t> ParseCount(std::string_view text, uint64_t min, uint64_t max) {
  REPRISE_ASSIGN_OR_RETURN(const auto values, ParseCountList(text, min, max));
  if (values.size() == 1) return static_cast<uint32_t>(values[0]);
  return absl::InvalidArgumentError(
      absl::StrCat("count: got \"", std::string(text), "\", allowed: one number"));
}

absl::StatusOr<std::vector<uint32_t>> ParseCounts(std::string_view text, uint64_t max) {
  REPRISE_ASSIGN_OR_RETURN(const auto values, ParseCountList(text, 1, max));
  return std::vector<uint32_t>(values.begin(), values.end());
}

absl::StatusOr<uint64_t> ParsePoolBytes(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(text));
  if (bytes >= 1 && bytes <= uint64_t{1} << 40) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("size: got \"", std::string(text), "\", allowed: 1B to 1TiB"));
}

void AddOutputOptions(CLI::App* app, OutputFlags* flags) {
  app->add_option("--json", flags->json_file,
                  "Write all figures to this file too; -: to stdout, and text to stderr")
      ->type_name("FILE");
  app->add_option("--svg", flags->svg_file, "Write a chart to this file too")->type_name("FILE");
}

absl::Status CheckOutput(const OutputFlags& flags) {
  if (flags.svg_file == kStdoutFile) return UsageError("--svg: got \"-\", allowed: a file");
  return absl::OkStatus();
}

absl::Status PrepareOutput(const OutputFlags& flags, Console* console) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, console));
  return PrepareRecord(flags.svg_file, console);
}

absl::Status WriteOutput(const OutputFlags& flags, const nlohmann::json& json, const Chart& chart,
                         Console* console) {
  REPRISE_RETURN_IF_ERROR(WriteRecord(flags.json_file, json, console));
  if (flags.svg_file.empty()) return absl::OkStatus();
  return WriteText(flags.svg_file, ToSvg(chart));
}

void AddRoundOptions(CLI::App* app, uint32_t* rounds, uint32_t* replays) {
  AddOption(app, "--rounds", rounds, UnsignedIn(1, 1000), "N", "3",
            "Times that all cells are measured, one after the other");
  AddOption(app, "--replays", replays, UnsignedIn(1, 1u << 20), "N", "20",
            "Measured replays of every graph, in every round");
}

void AddBandwidthOption(CLI::App* app, uint64_t* bytes) {
  AddOption(
      app, "--bandwidth-bytes", bytes,
      [](std::string_view text) -> absl::StatusOr<uint64_t> {
        REPRISE_ASSIGN_OR_RETURN(const uint64_t parsed, ParseBytes(text));
        if (parsed >= uint64_t{1} << 20 && parsed <= uint64_t{1} << 40) return parsed;
        return absl::InvalidArgumentError(
            absl::StrCat("size: got \"", std::string(text), "\", allowed: 1MiB to 1TiB"));
      },
      "SIZE", "", "Memory that the bandwidth is measured over (default: 4GiB, host 512MiB)");
}

absl::StatusOr<AttentionShape> ShapeOf(const HeadFlags& flags) {
  AttentionShape shape;
  shape.block_size = flags.block_size;
  const bool named = !flags.source.directory.empty() || !flags.source.preset.empty();
  if (named && (flags.num_heads || flags.num_kv_heads || flags.head_dim)) {
    return UsageError(
        "heads: got both a model and --heads, --kv-heads or --head-dim, allowed: one of them");
  }
  if (named) {
    REPRISE_RETURN_IF_ERROR(CheckSource(flags.source));
    REPRISE_ASSIGN_OR_RETURN(const models::ModelSpec model, models::ReadModelSpec(flags.source));
    shape.model = model.name;
    shape.num_heads = static_cast<int32_t>(model.num_heads);
    shape.num_kv_heads = static_cast<int32_t>(model.num_kv_heads);
    shape.head_dim = static_cast<int32_t>(model.head_dim);
    shape.scale = static_cast<float>(model.attention_multiplier);
    shape.window = static_cast<uint32_t>(model.Windows().front());
    shape.dtype = model.checkpoint_dtype;
    shape.kv_format = model.kv_cache_dtype;
  }
  shape.num_heads = flags.num_heads.value_or(shape.num_heads);
  shape.num_kv_heads = flags.num_kv_heads.value_or(shape.num_kv_heads);
  shape.head_dim = flags.head_dim.value_or(shape.head_dim);
  shape.window = flags.window.value_or(shape.window);
  shape.dtype = flags.dtype.value_or(shape.dtype);
  if (flags.kv_dtype) shape.kv_format = flags.kv_dtype;
  REPRISE_RETURN_IF_ERROR(CheckShape(shape));
  return shape;
}

void AddHeadOptions(CLI::App* app, HeadFlags* flags) {
  app->add_option("--model", flags->source.directory,
                  "Heads, window and data type of this Hugging Face directory's config.json")
      ->type_name("DIR");
  AddOption(app, "--preset", &flags->source.preset, ParsePreset, "NAME", "",
            "The same of a published shape, such as llama-3.1-8b or qwen3-8b");
  AddOption(app, "--heads", &flags->num_heads, UnsignedIn(1, 4096), "N", "32", "Query heads");
  AddOption(app, "--kv-heads", &flags->num_kv_heads, UnsignedIn(1, 4096), "N", "8",
            "KV heads: each serves as many query heads");
  AddOption(app, "--head-dim", &flags->head_dim, UnsignedIn(1, 256), "N", "128",
            "Elements of a head");
  AddOption(app, "--window", &flags->window, UnsignedIn(0, 1u << 30), "N", "",
            "Sliding window in tokens; 0: none (default: the widest of the model's layers)");
  app->add_option_function<std::string>(
         "--dtype",
         [flags](const std::string& text) {
           const auto dtype = ParseDType(text);
           if (!dtype.ok()) throw OptionError("--dtype", dtype.status());
           flags->dtype = *dtype;
         },
         "Data type of queries: auto (the model's, else bf16), bf16, f16, f32")
      ->type_name("TYPE")
      ->default_str("auto");
  AddOption(
      app, "--kv-dtype", &flags->kv_dtype, ParseKvDType, "TYPE", "auto",
      "Data type of KV: auto (the model's, else that of queries), fp8_e4m3, fp8_e5m2, or that "
      "of queries by name");
  AddOption(app, "--block-size", &flags->block_size, UnsignedIn(1, 1u << 16), "N", "16",
            "Tokens of a KV block");
  NameOptionGroup(app, "Heads");
}

}  // namespace reprise::tools
