// SPDX-License-Identifier: Apache-2.0
#include "tools/check/model_check.h"

#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/decoder.h"
#include "models/weights/checkpoint.h"
#include "models/weights/model_weights.h"
#include "models/weights/text_part.h"
#include "tools/device_flags.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// The tensors against what the layers declare.
void CheckWeights(const models::ModelSpec& spec, const engine::DecodeEngineOptions& options,
                  ModelCheck* check) {
  const auto checkpoint = models::Checkpoint::Open(check->directory);
  if (!checkpoint.ok()) {
    check->errors.push_back(checkpoint.status());
    return;
  }
  for (const std::string& name : (*checkpoint)->Names()) {
    ++check->num_tensors;
    check->checkpoint_bytes += (*checkpoint)->Find(name)->data.size();
  }
  if (spec.beside_vision) {
    // Without a text part there is nothing to count, and ModelWeights says so.
    if (const auto text = models::TextPart::Of(**checkpoint); text.ok()) {
      check->vision_tensors = text->num_vision_tensors();
      check->vision_bytes = text->vision_bytes();
    }
  }
  const auto decoder = models::Decoder::Create(spec);
  if (!decoder.ok()) {
    check->errors.push_back(decoder.status());
    return;
  }
  const runtime::DType kv_dtype =
      options.kv_dtype.value_or(spec.kv_cache_dtype.value_or(spec.checkpoint_dtype));
  const models::WeightPlan plan = (*decoder)->PlanWeights(spec.checkpoint_dtype, kv_dtype);
  check->num_parameters = plan.num_parameters();
  for (const absl::Status& error : models::ModelWeights::Check(plan, **checkpoint))
    check->errors.push_back(error);
}

void AddPreview(const models::ModelSpec& spec, runtime::Device& device,
                const engine::DecodeEngineOptions& options, ModelCheck* check) {
  const auto preview = engine::PreviewEngine(device, spec, options);
  if (!preview.ok()) {
    check->errors.push_back(preview.status());
    return;
  }
  check->preview = *preview;
  const uint64_t total = device.properties().total_bytes;
  if (total != 0 && preview->weights_bytes > total)
    check->errors.push_back(absl::ResourceExhaustedError(
        absl::StrCat("weights: got ", FormatBytes(preview->weights_bytes), ", allowed at most ",
                     FormatBytes(total), ", the memory of ", device.properties().name)));
}

std::string StepsOf(const engine::LayerKernel& kernel) {
  return kernel.in_decode && kernel.in_mixed ? "all" : kernel.in_decode ? "decode" : "mixed";
}

std::string FieldsText(const models::ConfigReport& config, size_t width) {
  Table table({"field", "use", "value"});
  table.AlignLeft();
  for (const models::FieldReport& field : config.fields)
    table.AddRow({field.name, std::string(NameOf(field.use)), field.value});
  return table.ToString(width);
}

std::string KernelsText(const engine::EnginePreview& preview, size_t width) {
  Table table({"kernel", "op", "steps", "path"});
  table.AlignLeft();
  for (const engine::LayerKernel& kernel : preview.kernels)
    table.AddRow(
        {kernel.kernel, kernel.op, StepsOf(kernel), kernel.is_reference ? "reference" : "tuned"});
  return table.ToString(width);
}

std::string_view PathOf(const engine::EnginePreview& preview) {
  return preview.is_tuned() ? "tuned" : "reference";
}

// Of longrope's.
const char* FactorsOf(const engine::EnginePreview& preview) {
  return *preview.takes_long_factors ? "long" : "short";
}

std::string SummaryText(const ModelCheck& check, const runtime::DeviceProperties& device,
                        size_t width) {
  Table table({});
  table.AlignLeft();
  if (check.config) table.AddRow({"architecture", check.config->architecture});
  if (check.num_parameters != 0)
    table.AddRow({"parameters", FormatCount(static_cast<uint64_t>(check.num_parameters))});
  if (check.num_tensors != 0)
    table.AddRow({"checkpoint", absl::StrCat(FormatCount(check.num_tensors), " tensors, ",
                                             FormatBytes(check.checkpoint_bytes))});
  if (check.num_tensors != 0 && check.config->spec.beside_vision)
    table.AddRow(
        {"vision part",
         absl::StrCat("not run, requests are text alone: ", FormatCount(check.vision_tensors),
                      " tensors, ", FormatBytes(check.vision_bytes), " that are not read")});
  table.AddRow({"device", DeviceText(device)});
  if (const auto& preview = check.preview) {
    table.AddRow({"weights", absl::StrCat(FormatBytes(preview->weights_bytes), " of ",
                                          std::string(runtime::NameOf(preview->dtype)), ", ",
                                          std::string(engine::NameOf(preview->linear)))});
    table.AddRow(
        {"KV cache", absl::StrCat(FormatBytes(preview->kv_bytes_per_token), " per token, of ",
                                  std::string(runtime::NameOf(preview->kv_dtype)))});
    if (preview->state_bytes_per_row != 0)
      table.AddRow({"state", absl::StrCat(FormatBytes(preview->state_bytes_per_row),
                                          " per row beside its KV, in the workspace")});
    if (preview->takes_long_factors.has_value())
      table.AddRow({"rope", absl::StrCat("longrope, with its ", FactorsOf(*preview),
                                         " factors: contexts may have ",
                                         FormatCount(static_cast<uint64_t>(
                                             check.config->spec.max_position_embeddings)),
                                         " tokens")});
    table.AddRow({"kernels", std::string(PathOf(*preview))});
  }
  if (const auto& compared = check.reference) {
    const LogitsDifference& d = compared->difference;
    table.AddRow({"logits",
                  absl::StrCat(compared->passed() ? "close to " : "far from ", compared->file,
                               ": relative error ", d.relative, ", allowed ", compared->tolerance,
                               "; largest difference ", d.largest, "; the same likeliest token at ",
                               d.same_token, " of ", d.positions, " positions")});
  }
  return table.ToString(width);
}

nlohmann::json FieldsToJson(const models::ConfigReport& config) {
  nlohmann::json fields = nlohmann::json::array();
  for (const models::FieldReport& field : config.fields) {
    const bool refused = field.use == models::FieldUse::kRefused;
    fields.push_back({{"name", field.name},
                      {"use", NameOf(field.use)},
                      {"value", field.value},
                      {"why", refused ? nlohmann::json(field.why) : nullptr}});
  }
  return fields;
}

nlohmann::json PreviewToJson(const engine::EnginePreview& preview) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const engine::LayerKernel& kernel : preview.kernels)
    kernels.push_back({{"kernel", kernel.kernel},
                       {"op", kernel.op},
                       {"steps", StepsOf(kernel)},
                       {"reference", kernel.is_reference}});
  return {{"dtype", runtime::NameOf(preview.dtype)},
          {"kv_dtype", runtime::NameOf(preview.kv_dtype)},
          {"linear", engine::NameOf(preview.linear)},
          {"weights_bytes", preview.weights_bytes},
          {"kv_bytes_per_token", preview.kv_bytes_per_token},
          {"state_bytes_per_row", preview.state_bytes_per_row},
          {"longrope_factors",
           preview.takes_long_factors.has_value() ? nlohmann::json(FactorsOf(preview)) : nullptr},
          {"path", PathOf(preview)},
          {"kernels", kernels}};
}

nlohmann::json ComparedToJson(const ComparedLogits& compared) {
  return {{"file", compared.file},
          {"prompts", compared.prompts},
          {"positions", compared.difference.positions},
          {"relative_error", compared.difference.relative},
          {"largest_difference", compared.difference.largest},
          {"same_likeliest_token", compared.difference.same_token},
          {"tolerance", compared.tolerance},
          {"passed", compared.passed()}};
}

}  // namespace

ModelCheck CheckModel(const std::string& directory, runtime::Device& device,
                      const engine::DecodeEngineOptions& options) {
  ModelCheck check{.directory = directory};
  auto config = models::ReportHfConfig(directory);
  if (!config.ok()) {
    check.errors.push_back(config.status());
    return check;
  }
  check.config = *std::move(config);
  check.errors = check.config->errors;
  if (!check.errors.empty()) return check;
  CheckWeights(check.config->spec, options, &check);
  AddPreview(check.config->spec, device, options, &check);
  return check;
}

std::string ModelCheckText(const ModelCheck& check, const runtime::DeviceProperties& device,
                           size_t width) {
  std::string text = absl::StrCat(check.directory, check.runs() ? " runs" : " does not run");
  if (check.runs())
    absl::StrAppend(&text, ", on ", std::string(PathOf(*check.preview)), " kernels");
  absl::StrAppend(&text, "\n\n");
  for (const absl::Status& error : check.errors)
    absl::StrAppend(&text, "  ", std::string(error.message()), "\n");
  if (!check.errors.empty()) absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, SummaryText(check, device, width));
  if (check.config) absl::StrAppend(&text, "\n", FieldsText(*check.config, width));
  if (check.preview) absl::StrAppend(&text, "\n", KernelsText(*check.preview, width));
  return text;
}

nlohmann::json ModelCheckToJson(const ModelCheck& check, const runtime::DeviceProperties& device) {
  nlohmann::json errors = nlohmann::json::array();
  for (const absl::Status& error : check.errors) errors.push_back(std::string(error.message()));
  const bool known = check.config.has_value();
  return {
      {"schema", "reprise.check/1"},
      {"model", check.directory},
      {"runs", check.runs()},
      {"errors", errors},
      {"architecture", known ? nlohmann::json(check.config->architecture) : nullptr},
      {"parameters", check.num_parameters != 0 ? nlohmann::json(check.num_parameters) : nullptr},
      {"checkpoint",
       {{"tensors", check.num_tensors},
        {"bytes", check.checkpoint_bytes},
        {"vision_tensors", check.vision_tensors},
        {"vision_bytes", check.vision_bytes}}},
      {"fields", known ? FieldsToJson(*check.config) : nlohmann::json::array()},
      {"device", DeviceToJson(device)},
      {"engine", check.preview ? PreviewToJson(*check.preview) : nullptr},
      {"reference", check.reference ? ComparedToJson(*check.reference) : nullptr}};
}

}  // namespace reprise::tools
