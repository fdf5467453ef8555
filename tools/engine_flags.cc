// SPDX-License-Identifier: Apache-2.0
#include "tools/engine_flags.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/attention_tree_text.h"
#include "models/config/model_presets.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "tools/bench/table_file.h"
#include "tools/bench/tree_file.h"
#include "tools/simulated_device.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr uint64_t kMaxU64 = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();

auto UnsignedIn(uint64_t min, uint64_t max) {
  return [min, max](std::string_view text) { return ParseUnsigned(text, min, max); };
}

absl::Status Refuse(std::string_view what, std::string_view got, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), ": got \"", std::string(got),
                                                 "\", allowed: ", std::string(allowed)));
}

absl::StatusOr<uint64_t> ParseCacheBytes(std::string_view text) {
  if (text == "auto") return 0;
  return ParseBytes(text);
}

absl::StatusOr<std::vector<int64_t>> ParseBuckets(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const auto values, ParseUnsignedList(text, 1, 1u << 20));
  return std::vector<int64_t>(values.begin(), values.end());
}

void AddDTypeOptions(CLI::App* app, engine::DecodeEngineOptions* options) {
  app->add_option_function<std::string>(
         "--dtype",
         [options](const std::string& text) {
           const auto dtype = ParseDType(text);
           if (!dtype.ok()) throw OptionError("--dtype", dtype.status());
           options->dtype_from_checkpoint = !dtype->has_value();
           options->dtype = dtype->value_or(runtime::DType::kBf16);
         },
         "Data type of compute; auto: the checkpoint's")
      ->type_name("auto|bf16|f16|f32")
      ->default_str("auto");
  AddOption(app, "--kv-dtype", &options->kv_dtype, ParseKvDType, "TYPE", "auto",
            "Data type of the KV cache: auto (what the checkpoint was calibrated for, else that of "
            "compute), fp8_e4m3, fp8_e5m2, or that of compute by name");
}

void AddModelOptions(CLI::App* app, EngineFlags* flags) {
  app->add_option("--model", flags->source.directory,
                  "Hugging Face directory: config.json and safetensors")
      ->type_name("DIR");
  AddOption(app, "--preset", &flags->source.preset, ParsePreset, "NAME", "",
            "Random weights in a published shape, for measuring: llama-3.1-8b, granite-8b-code, "
            "llama-3.2-1b, mistral-7b-v0.1, qwen2.5-7b, qwen3-8b, gemma-2-9b, gemma-3-1b, "
            "gemma-3-4b, phi-4, phi-4-mini, olmo-2-7b, mixtral-8x7b, qwen3-30b-a3b, "
            "granite-3.1-3b-a800m, gpt-oss-20b, gpt-oss-120b, granite-4.0-h-micro, bamba-9b, "
            "llama-3.1-8b-fp8, qwen3-8b-fp8, llama-3.1-8b-int4, llama-3.1-8b-act-order, "
            "qwen3-8b-awq, qwen3-30b-a3b-fp8, qwen3-30b-a3b-int4");
  AddOption(app, "--random-seed", &flags->source.random_seed, UnsignedIn(0, kMaxU64), "N", "1",
            "Seed of a preset's weights");
  AddDTypeOptions(app, &flags->engine);
}

void AddLinearOption(CLI::App* app, engine::DecodeEngineOptions* options) {
  AddOption(
      app, "--linear", &options->linear, ParseLinear, "POLICY", "tuned",
      "tuned (what is faster: packed on sm_90, and on all GPUs with matrix units where weights "
      "have 8 or 4 bits; else row-major), row-major (weights as they are published), packed "
      "(weights in the order in which they are read; GPUs, bf16 and f16) "
      "or portable (the reference kernels, slow)");
  app->add_flag(
      "--round-activations", options->round_activations,
      "Round what linear layers of fp8_e4m3 weights read to fp8_e4m3 too, for checkpoints "
      "that mean it, and multiply by FP8 tensor cores: sm_90, or --linear portable");
}

void AddMemoryOptions(CLI::App* app, EngineFlags* flags) {
  AddOption(app, "--kv-cache", &flags->engine.kv_cache_bytes, ParseCacheBytes, "SIZE", "auto",
            "KV pool, such as 4GiB; auto: what is left of the GPU, 256MiB on the host");
  AddOption(
      app, "--memory-fraction", &flags->engine.memory_fraction,
      [](std::string_view text) { return ParseDecimal(text, 0.01, 1.0); }, "F", "0.9",
      "Share of the device's memory to use in all, with --kv-cache auto");
  AddLinearOption(app, &flags->engine);
  app->add_option("--linear-table", flags->linear_table_file,
                  "Table of kernels for linear layers, as `reprise tune linear` writes it: others "
                  "of the same bits for some shapes and rows (default: none)")
      ->type_name("FILE");
  AddOption(
      app, "--decode", &flags->engine.decode, ParseDecode, "POLICY", "tuned",
      "Decode steps of few rows: tuned (what is faster: chain), chain (a kernel for each op), "
      "step-kernel (one kernel for all layers, up to 8 rows; sm_90 with packed weights). The bits "
      "are the same");
}

void AddStepOptions(CLI::App* app, EngineFlags* flags) {
  AddOption(app, "--block-size", &flags->engine.block_size, UnsignedIn(1, 1u << 16), "N", "16",
            "Tokens of a KV block");
  AddOption(app, "--max-rows", &flags->engine.max_rows, UnsignedIn(1, 1u << 16), "N", "256",
            "Rows resident at once");
  AddOption(app, "--max-context", &flags->engine.max_context_length, UnsignedIn(0, kMaxU32), "N",
            "0", "Tokens of a row; 0: the model's limit. It chooses the factors of longrope");
  AddOption(app, "--decode-buckets", &flags->engine.decode_buckets, ParseBuckets, "N,N,...", "",
            "Rows of each decode graph (default: powers of two up to --max-rows)");
  AddOption(app, "--mixed-buckets", &flags->engine.mixed_buckets, ParseBuckets, "N,N,...", "",
            "Tokens of each graph that takes prompts (default: by device)");
  AddOption(app, "--pipeline-depth", &flags->engine.pipeline_depth, UnsignedIn(1, 8), "N", "2",
            "Steps in flight");
  app->add_flag_callback(
      "--no-adjust-logits", [flags] { flags->engine.adjust_logits = false; },
      "No penalties, logit bias, allowed tokens: saves 8 bytes per row and token of the "
      "vocabulary");
  AddOption(app, "--max-logit-rows", &flags->engine.max_logit_rows, UnsignedIn(0, 1u << 16), "N",
            "4", "Rows of a step that may return all their logits");
  AddOption(app, "--max-prompt-logprobs", &flags->engine.max_prompt_logprobs,
            UnsignedIn(0, 1u << 16), "N", "64",
            "Prompt tokens of a step whose likelihood may be asked for");
  AddOption(app, "--max-draft-tokens", &flags->engine.max_draft_tokens,
            UnsignedIn(0, kernels::kMaxDraftTokens), "N",
            absl::StrCat(flags->engine.max_draft_tokens),
            "Tokens of a step that rows may bring for the step to verify; each takes 4 bytes of "
            "logits per token of the vocabulary, or 8 where logits may be adjusted; 0: none");
  app->add_option("--attention-tree", flags->attention_tree_file,
                  "Tree by which attention's plan decides, as `reprise tune attention` writes it "
                  "(default: one rule for all)")
      ->type_name("FILE");
  app->add_flag_callback(
      "--no-batch-invariance", [flags] { flags->engine.batch_invariant = false; },
      "Let a tree cut rows by what runs beside them: their bits may depend on it then");
  AddOption(app, "--min-shared-tokens", &flags->engine.min_shared_tokens, UnsignedIn(0, 1u << 30),
            "N", "0",
            "Read a prefix that rows share once for several of them where it has so many tokens, "
            "such as 4096; 0: for each row");
  app->add_flag("--poison", flags->diagnostics.poison,
                "Fill what must never be read with NaN: slow, a test mode");
}

// A bar on a terminal while the engine starts.
class LoadProgressPrinter {
 public:
  explicit LoadProgressPrinter(Console* console) : console_(console) {}

  void operator()(const engine::EngineProgress& progress) {
    const bool bytes = progress.stage == "load";
    if (bytes) loaded_bytes_ = progress.total;
    const auto amount = [bytes](uint64_t n) { return bytes ? FormatBytes(n) : FormatCount(n); };
    const auto done = static_cast<double>(progress.done);
    const auto total = static_cast<double>(progress.total);
    console_->Progress(absl::StrCat(
        std::string(progress.stage), " ", ProgressBar(done, total, 30, *console_), " ",
        amount(progress.done), " / ", amount(progress.total), "  ", std::string(progress.detail)));
  }

  // A line for each stage that there was, with the times of the engine's own report.
  void Note(const engine::EngineInfo& info) const {
    const auto took = [](uint64_t ns) { return FormatDuration(static_cast<double>(ns)); };
    if (loaded_bytes_ != 0)
      console_->Note(
          absl::StrCat("load: ", FormatBytes(loaded_bytes_), " in ", took(info.load_ns)));
    console_->Note(absl::StrCat(
        "capture: ", FormatCount(info.decode_buckets.size() + info.mixed_buckets.size()),
        " graphs in ", took(info.capture_ns)));
  }

 private:
  Console* console_;
  uint64_t loaded_bytes_ = 0;
};

// --min-shared-tokens was asked for, and nothing comes of it.
std::string NoSharedReadsText(const engine::EngineInfo& info) {
  return absl::StrCat("min-shared-tokens: without effect, because '", info.device.name,
                      "' has no kernel that reads a prefix once for ", info.model.num_heads, "/",
                      info.model.num_kv_heads, " heads of ", info.model.head_dim,
                      " and a KV cache of ", std::string(runtime::NameOf(info.kv_dtype)),
                      " in blocks of ", info.limits.block_size, " tokens");
}

}  // namespace

absl::StatusOr<std::string> ParsePreset(std::string_view text) {
  std::vector<std::string> names;
  for (std::string_view name : models::PresetNames()) {
    if (name == text) return std::string(text);
    names.emplace_back(name);
  }
  return Refuse("preset", text, absl::StrJoin(names, ", "));
}

absl::StatusOr<std::optional<runtime::DType>> ParseDType(std::string_view text) {
  if (text == "auto") return std::optional<runtime::DType>();
  for (runtime::DType dtype : {runtime::DType::kBf16, runtime::DType::kF16, runtime::DType::kF32}) {
    if (text == runtime::NameOf(dtype)) return std::optional<runtime::DType>(dtype);
  }
  return Refuse("dtype", text, "auto, bf16, f16, f32");
}

absl::StatusOr<std::optional<runtime::DType>> ParseKvDType(std::string_view text) {
  for (runtime::DType dtype : {runtime::DType::kE4m3, runtime::DType::kE5m2}) {
    if (text == runtime::NameOf(dtype)) return std::optional<runtime::DType>(dtype);
  }
  auto dtype = ParseDType(text);
  if (dtype.ok()) return dtype;
  return Refuse("kv dtype", text, "auto, bf16, f16, f32, fp8_e4m3, fp8_e5m2");
}

absl::StatusOr<engine::LinearPolicy> ParseLinear(std::string_view text) {
  using engine::LinearPolicy;
  for (const auto policy : {LinearPolicy::kTuned, LinearPolicy::kRowMajor, LinearPolicy::kPacked,
                            LinearPolicy::kPortable})
    if (text == engine::NameOf(policy)) return policy;
  return Refuse("linear", text, "tuned, row-major, packed, portable");
}

absl::StatusOr<engine::DecodePolicy> ParseDecode(std::string_view text) {
  using engine::DecodePolicy;
  for (const auto policy : {DecodePolicy::kTuned, DecodePolicy::kChain, DecodePolicy::kStepKernel})
    if (text == engine::NameOf(policy)) return policy;
  return Refuse("decode", text, "tuned, chain, step-kernel");
}

void AddTypeOptions(CLI::App* app, engine::DecodeEngineOptions* options) {
  AddDTypeOptions(app, options);
  AddLinearOption(app, options);
}

void AddEngineOptions(CLI::App* app, EngineFlags* flags, bool offers_simulation) {
  AddModelOptions(app, flags);
  NameOptionGroup(app, "Model");
  AddDeviceOptions(app, &flags->device, offers_simulation);
  AddMemoryOptions(app, flags);
  NameOptionGroup(app, "Device");
  AddStepOptions(app, flags);
  NameOptionGroup(app, "Steps");
}

absl::Status CheckSource(const models::ModelSource& source) {
  if (source.directory.empty() == source.preset.empty()) {
    return UsageError(source.preset.empty()
                          ? "model: got none, allowed: --model DIR or --preset NAME"
                          : "model: got both --model and --preset, allowed: one of them");
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedEngine> LoadEngine(const EngineFlags& flags, Console* console) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto nanoseconds_since = [](Clock::time_point time) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - time).count());
  };
  LoadedEngine loaded;
  REPRISE_RETURN_IF_ERROR(CheckDeviceFlags(flags.device));
  engine::DecodeEngineOptions options = flags.engine;
  engine::EngineDiagnostics diagnostics = flags.diagnostics;
  if (flags.device.choice.simulated) {
    REPRISE_ASSIGN_OR_RETURN(const SimulatedDevice simulated,
                             ReadSimulatedDevice(flags.device.profile_file));
    REPRISE_RETURN_IF_ERROR(simulated.Apply(flags.source, &options, &diagnostics));
    loaded.simulation = simulated.simulation;
    console->Note(simulated.prompts_note);
  }
  if (!flags.attention_tree_file.empty()) {
    REPRISE_ASSIGN_OR_RETURN(const engine::NamedAttentionTree tree,
                             ReadAttentionTreeFile(flags.attention_tree_file));
    options.attention_tree = engine::AttentionTreeText(tree);
  }
  if (!flags.linear_table_file.empty()) {
    REPRISE_ASSIGN_OR_RETURN(options.linear_table, ReadLinearTableFile(flags.linear_table_file));
  }
  REPRISE_ASSIGN_OR_RETURN(loaded.device, OpenDevice(flags.device, console));
  loaded.device_ns = nanoseconds_since(begin);
  LoadProgressPrinter printer(console);
  absl::StatusOr<std::unique_ptr<engine::DecodeEngine>> engine =
      engine::CreateEngineWithDiagnostics(*loaded.device, flags.source, options, diagnostics,
                                          std::ref(printer));
  console->ClearProgress();
  REPRISE_RETURN_IF_ERROR(engine.status());
  loaded.engine = *std::move(engine);
  loaded.total_ns = nanoseconds_since(begin);
  printer.Note(loaded.engine->info());
  if (options.min_shared_tokens != 0 && loaded.engine->info().limits.min_shared_tokens == 0)
    console->Note(NoSharedReadsText(loaded.engine->info()));
  return loaded;
}

}  // namespace reprise::tools
