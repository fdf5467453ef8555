// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_flags.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "models/config/weight_quantization.h"
#include "runtime/status_macros.h"
#include "tools/bench/bench_flags.h"
#include "tools/engine_flags.h"

namespace reprise::tools {
namespace {

absl::StatusOr<std::optional<kernels::WeightFormat>> ParseWeights(std::string_view text) {
  using kernels::WeightFormat;
  if (text == "auto") return std::optional<WeightFormat>();
  if (text == "dense") return std::optional<WeightFormat>(WeightFormat::kNone);
  for (const WeightFormat format : {WeightFormat::kE4m3, WeightFormat::kInt4})
    if (text == kernels::NameOf(format)) return std::optional<WeightFormat>(format);
  return absl::InvalidArgumentError(absl::StrCat("weights: got \"", std::string(text),
                                                 "\", allowed: auto, dense, fp8_e4m3, int4"));
}

absl::StatusOr<int32_t> ParseGroupSize(std::string_view text) {
  for (const int32_t size : {32, 64, 128})
    if (text == std::to_string(size)) return size;
  return absl::InvalidArgumentError(
      absl::StrCat("group size: got \"", std::string(text), "\", allowed: 32, 64, 128"));
}

// What --weights and --group-size come to. of_model: what a model's config says.
absl::StatusOr<std::optional<models::WeightQuantization>> ResolveQuantization(
    const LinearShapeFlags& flags, const std::optional<models::WeightQuantization>& of_model) {
  std::optional<models::WeightQuantization> weights = of_model;
  if (flags.weights == kernels::WeightFormat::kNone) {
    weights.reset();
  } else if (flags.weights && !(weights && weights->format() == *flags.weights)) {
    const bool int4 = flags.weights == kernels::WeightFormat::kInt4;
    weights = models::WeightQuantization{.storage = int4 ? models::WeightStorage::kPackedInt4
                                                         : models::WeightStorage::kE4m3};
  }
  if (!flags.group_size) return weights;
  if (!weights || weights->format() != kernels::WeightFormat::kInt4) {
    return UsageError(
        absl::StrCat("group size: got ", *flags.group_size, " with weights of ",
                     std::string(weights ? kernels::NameOf(weights->format()) : "the data type"),
                     ", allowed: with weights of int4"));
  }
  weights->group_size = *flags.group_size;
  return weights;
}

}  // namespace

absl::StatusOr<LinearShapes> ShapesOf(const LinearShapeFlags& flags) {
  const bool named = !flags.source.directory.empty() || !flags.source.preset.empty();
  if (!named && flags.sizes.empty()) {
    return UsageError(
        "shapes: got none, allowed: --model DIR, --preset NAME or --shape <out>x<in>,...");
  }
  if (named && !flags.sizes.empty())
    return UsageError("shapes: got both a model and --shape, allowed: one of them");
  LinearShapes of;
  of.shapes = flags.sizes;
  if (named) {
    REPRISE_RETURN_IF_ERROR(CheckSource(flags.source));
    REPRISE_ASSIGN_OR_RETURN(of.model, models::ReadModelSpec(flags.source));
    of.shapes = LinearsOf(of.model);
  }
  of.dtype = flags.dtype.value_or(of.model.checkpoint_dtype);
  REPRISE_ASSIGN_OR_RETURN(of.model.weight_quantization,
                           ResolveQuantization(flags, of.model.weight_quantization));
  SetFormats(&of.shapes, of.dtype, of.model.weight_quantization);
  return of;
}

void AddLinearShapeOptions(CLI::App* app, LinearShapeFlags* flags, std::vector<uint32_t>* rows) {
  app->add_option("--model", flags->source.directory,
                  "Shapes and data type of this Hugging Face directory's config.json")
      ->type_name("DIR");
  AddOption(app, "--preset", &flags->source.preset, ParsePreset, "NAME", "",
            "The same of a published shape, such as llama-3.1-8b or granite-8b-code");
  AddOption(app, "--shape", &flags->sizes, ParseLinearShapes, "NxK,...", "",
            "Weights of so many output and input features, such as 28672x4096, instead of a "
            "model's");
  AddOption(app, "--dtype", &flags->dtype, ParseDType, "TYPE", "auto",
            "Data type of activations, and of weights that are not quantised: auto (the model's, "
            "else bf16), bf16, f16, f32");
  AddOption(app, "--weights", &flags->weights, ParseWeights, "FORMAT", "auto",
            "How weights are stored, of a model those that are quantised where a model's are: auto "
            "(as the model has them, else dense), dense (in the data type), fp8_e4m3, int4");
  AddOption(app, "--group-size", &flags->group_size, ParseGroupSize, "N", "",
            "Inputs of a scale of int4: 32, 64 or 128 (default: the model's, else 128)");
  AddOption(
      app, "--rows", rows, [](std::string_view text) { return ParseCounts(text, kMostBatchRows); },
      "N,N,...", "1,2,4,8,16,32,64,128,256", "Rows of the input");
  NameOptionGroup(app, "Shapes");
}

}  // namespace reprise::tools
