// SPDX-License-Identifier: Apache-2.0
// `reprise check`: whether a model directory runs, and how, before anything is loaded; and, with a
// file of another implementation's logits, whether it computes the same.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "models/kv_pool.h"
#include "runtime/status_macros.h"
#include "tools/check/model_check.h"
#include "tools/check/reference_logits.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/engine_flags.h"
#include "tools/record.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kCheckExamples[] =
    "Examples:\n"
    "  reprise check examples/byte-llama\n"
    "  reprise check examples/byte-llama --device host --dtype f32 --json check.json\n"
    "  reprise check tests/fixtures/gemma2-tiny --reference "
    "tests/fixtures/gemma2-tiny/reference.json\n"
    "\n"
    "Exit codes: 0 it runs, 1 it does not, 2 the command line is wrong, 3 its logits are too far "
    "from the reference. docs/models.md says more; docs/check.schema.json describes the JSON.";

// Of the relative error of all logits. A type of 16 bits rounds every activation.
constexpr double kTolerance = 5e-2, kToleranceOfF32 = 1e-3;
constexpr uint32_t kChunkTokens = 256;

struct CheckFlags {
  std::string directory;
  DeviceFlags device;
  engine::DecodeEngineOptions engine;
  std::string reference_file, json_file;
  std::optional<double> tolerance;
};

// An engine for one prompt at a time.
absl::StatusOr<ComparedLogits> Compare(const CheckFlags& flags, const ModelCheck& check,
                                       runtime::Device& device) {
  const models::ModelSpec& spec = check.config->spec;
  const engine::EnginePreview& preview = *check.preview;
  REPRISE_ASSIGN_OR_RETURN(
      const ReferenceLogits reference,
      ReadReferenceLogits(flags.reference_file, spec.vocab_size, spec.max_position_embeddings));
  engine::DecodeEngineOptions options = flags.engine;
  const uint32_t chunk = std::min(kChunkTokens, reference.max_length());
  options.max_rows = 1;
  options.decode_buckets = {1};
  options.mixed_buckets = {chunk};
  options.max_context_length = reference.max_length();
  options.adjust_logits = false;
  options.max_prompt_logprobs = 0;
  options.max_logit_rows = 1;
  const auto geometry = models::KvGeometry::For(spec, options.block_size, preview.kv_dtype);
  const uint64_t blocks =
      (options.max_context_length + options.block_size - 1) / options.block_size;
  options.kv_cache_bytes = (blocks + 1) * geometry.BlockBytes();  // and the scratch block
  REPRISE_ASSIGN_OR_RETURN(const auto engine, engine::DecodeEngine::Create(
                                                  device, {.directory = flags.directory}, options));
  ComparedLogits compared{.file = flags.reference_file, .prompts = reference.prompts.size()};
  REPRISE_ASSIGN_OR_RETURN(compared.difference, CompareLogits(*engine, reference, chunk));
  const bool f32 = preview.dtype == runtime::DType::kF32 && preview.kv_dtype == preview.dtype;
  compared.tolerance = flags.tolerance.value_or(f32 ? kToleranceOfF32 : kTolerance);
  return compared;
}

absl::Status Verdict(const ModelCheck& check) {
  if (!check.runs()) {
    const std::string first(check.errors.front().message());
    const size_t others = check.errors.size() - 1;
    return absl::FailedPreconditionError(
        others == 0 ? first : absl::StrCat(first, "; and ", others, " more"));
  }
  if (check.reference && !check.reference->passed())
    return BeyondBoundError(absl::StrCat(check.reference->file, ": relative error of logits: got ",
                                         check.reference->difference.relative, ", allowed ",
                                         check.reference->tolerance));
  return absl::OkStatus();
}

absl::Status Run(const CheckFlags& flags, const Invocation& invocation) {
  Console* console = invocation.console;
  REPRISE_RETURN_IF_ERROR(CheckDeviceFlags(flags.device));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, console));
  REPRISE_ASSIGN_OR_RETURN(const auto device, OpenDevice(flags.device, console));
  ModelCheck check = CheckModel(flags.directory, *device, flags.engine);
  absl::Status compares;
  if (check.runs() && !flags.reference_file.empty()) {
    auto compared = Compare(flags, check, *device);
    compares = compared.status();
    if (compares.ok()) check.reference = *std::move(compared);
  }
  console->Print(ModelCheckText(check, device->properties(), console->width()));
  nlohmann::json json = RecordOf("check", invocation);
  json.update(ModelCheckToJson(check, device->properties()));
  REPRISE_RETURN_IF_ERROR(WriteRecord(flags.json_file, json, console));
  REPRISE_RETURN_IF_ERROR(compares);
  return Verdict(check);
}

}  // namespace

Command AddCheckCommand(CLI::App* root) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* app = root->add_subcommand(
      "check", "Say whether a model directory runs, on which kernels, in how many bytes");
  app->footer(kCheckExamples);
  app->add_option("MODEL_DIR", flags->directory,
                  "Hugging Face directory: config.json and safetensors")
      ->required()
      ->type_name("");
  app->add_option("--reference", flags->reference_file,
                  "Compare with the logits of this file, as tools/make_reference.py writes it: "
                  "loads the model")
      ->type_name("FILE");
  AddOption(
      app, "--tolerance", &flags->tolerance,
      [](std::string_view text) -> absl::StatusOr<double> { return ParseDecimal(text, 0, 1); },
      "SHARE", "", "Relative error of logits that is allowed (default: 0.001 with f32, else 0.05)");
  app->add_option("--json", flags->json_file,
                  "Write the same to this file too; -: to stdout, and text to stderr")
      ->type_name("FILE");
  NameOptionGroup(app, "Output");
  AddTypeOptions(app, &flags->engine);
  NameOptionGroup(app, "Model");
  AddDeviceOptions(app, &flags->device);
  NameOptionGroup(app, "Device");
  return {app, [flags](const Invocation& invocation) { return Run(*flags, invocation); }};
}

}  // namespace reprise::tools
