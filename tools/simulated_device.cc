// SPDX-License-Identifier: Apache-2.0
#include "tools/simulated_device.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/config/json_input.h"
#include "models/decoder.h"
#include "models/kv_pool.h"
#include "models/weights/file_input.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "tools/profile/profile_file.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using models::Json;
using models::JsonFields;

constexpr std::string_view kSchema = "reprise.profile/1";
constexpr size_t kMaxProfileBytes = size_t{64} << 20;
constexpr int64_t kMaxCount = int64_t{1} << 60;
constexpr double kNsPerUs = 1e3;

absl::Status Refuse(const std::string& what, const std::string& got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": got ", got, ", allowed: ", allowed));
}

// An object that has to be there; `path` names it.
absl::StatusOr<const Json*> ObjectAt(const Json& json, const char* name, const std::string& path) {
  const auto found = json.find(name);
  if (found == json.end()) return Refuse(path, "none", "an object");
  if (!found->is_object()) return Refuse(path, models::ShowJson(*found), "an object");
  return &*found;
}

absl::StatusOr<const Json*> ArrayAt(const Json& json, const char* name, const std::string& path) {
  const auto found = json.find(name);
  if (found == json.end()) return Refuse(path, "none", "an array");
  if (!found->is_array()) return Refuse(path, models::ShowJson(*found), "an array");
  return &*found;
}

absl::StatusOr<std::string> TextAt(const JsonFields& fields, const char* name) {
  REPRISE_ASSIGN_OR_RETURN(std::string text, fields.StringOr(name, ""));
  if (text.empty()) return fields.Refuse(name, "a text");
  return text;
}

absl::Status ReadEngine(const Json& engine, const std::string& path, SimulatedDevice* device) {
  REPRISE_ASSIGN_OR_RETURN(const Json* model, ObjectAt(engine, "model", path + "model"));
  REPRISE_ASSIGN_OR_RETURN(const Json* of_device, ObjectAt(engine, "device", path + "device"));
  REPRISE_ASSIGN_OR_RETURN(const Json* memory,
                           ObjectAt(engine, "memory_bytes", path + "memory_bytes"));
  const JsonFields fields(engine, path);
  const JsonFields model_fields(*model, path + "model.");
  const JsonFields device_fields(*of_device, path + "device.");
  const JsonFields memory_fields(*memory, path + "memory_bytes.");
  REPRISE_ASSIGN_OR_RETURN(device->device, TextAt(device_fields, "name"));
  REPRISE_ASSIGN_OR_RETURN(device->architecture, TextAt(model_fields, "architecture"));
  REPRISE_ASSIGN_OR_RETURN(device->num_parameters,
                           model_fields.Integer("parameters", 1, kMaxCount));
  REPRISE_ASSIGN_OR_RETURN(device->dtype, TextAt(fields, "dtype"));
  REPRISE_ASSIGN_OR_RETURN(device->kv_dtype, fields.StringOr("kv_dtype", ""));
  REPRISE_ASSIGN_OR_RETURN(device->kv_cache_bytes, memory_fields.Integer("kv_cache", 1, kMaxCount));
  REPRISE_ASSIGN_OR_RETURN(const Json* graphs, ArrayAt(engine, "graphs", path + "graphs"));
  for (size_t i = 0; i < graphs->size(); ++i) {
    const std::string at = absl::StrCat(path, "graphs[", i, "]");
    if (!(*graphs)[i].is_object()) return Refuse(at, models::ShowJson((*graphs)[i]), "an object");
    const JsonFields graph((*graphs)[i], at + ".");
    REPRISE_ASSIGN_OR_RETURN(const std::string name, TextAt(graph, "name"));
    REPRISE_ASSIGN_OR_RETURN(const int64_t capacity, graph.Integer("capacity", 1, 65536));
    if (name.starts_with("mixed/")) device->mixed_buckets.push_back(capacity);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> PositiveUpTo(const JsonFields& fields, const char* name, uint64_t max,
                                    const std::string& why) {
  REPRISE_ASSIGN_OR_RETURN(const double value, fields.Positive(name));
  if (value <= static_cast<double>(max)) return value;
  return fields.Refuse(name, absl::StrCat("a number up to ", max, why));
}

absl::StatusOr<double> ReadDeviceNs(const Json& point, const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const Json* plain, ObjectAt(point, "plain", path + ".plain"));
  REPRISE_ASSIGN_OR_RETURN(const Json* device,
                           ObjectAt(*plain, "device_us", path + ".plain.device_us"));
  constexpr auto kMaxUs = static_cast<uint64_t>(engine::kMaxStepNs / kNsPerUs);
  REPRISE_ASSIGN_OR_RETURN(
      const double us, PositiveUpTo(JsonFields(*device, path + ".plain.device_us."), "p50", kMaxUs,
                                    ", after which an engine gives a step up"));
  return us * kNsPerUs;
}

absl::StatusOr<engine::StepCostPoint> ReadPoint(const Json& point, const std::string& path) {
  if (!point.is_object()) return Refuse(path, models::ShowJson(point), "an object");
  const JsonFields fields(point, path + ".");
  engine::StepCostPoint read;
  REPRISE_ASSIGN_OR_RETURN(read.rows, fields.Integer("rows", 1, engine::kMaxCostRows));
  // Profiles of models without a window may leave mean_attended out.
  const char* context = fields.Find("mean_attended") != nullptr ? "mean_attended" : "mean_context";
  REPRISE_ASSIGN_OR_RETURN(read.context,
                           PositiveUpTo(fields, context, engine::kMaxCostContext, " tokens"));
  REPRISE_ASSIGN_OR_RETURN(read.device_ns, ReadDeviceNs(point, path));
  return read;
}

// Prompts of a point, each from its first token on; chunk_rows is 0 where there are none.
absl::StatusOr<engine::StepLoad> ReadPrompts(const Json& point, const std::string& path) {
  engine::StepLoad load;
  const JsonFields fields(point, path + ".");
  const Json* prompts = point.is_object() ? fields.Find("prompts") : nullptr;
  if (prompts == nullptr) return load;
  const auto refuse = [&] {
    return fields.Refuse("prompts", absl::StrCat("an array of whole numbers from 1 on, up to ",
                                                 engine::kMaxCostRows, " together"));
  };
  if (!prompts->is_array()) return refuse();
  for (const Json& prompt : *prompts) {
    if (!prompt.is_number_integer()) return refuse();
    const auto tokens = prompt.get<int64_t>();
    if (tokens < 1 || tokens > engine::kMaxCostRows) return refuse();
    ++load.chunk_rows;
    load.chunk_tokens += static_cast<uint64_t>(tokens);
    load.chunk_pairs +=
        static_cast<uint64_t>(engine::ChunkPairs(static_cast<double>(tokens), /*history=*/0));
    if (load.chunk_tokens > engine::kMaxCostRows) return refuse();
  }
  load.tokens = load.kv_tokens = load.chunk_kv_tokens = load.chunk_tokens;
  return load;
}

// A point of prompts beside `rows` that decode.
struct MixedStep {
  engine::StepLoad load;
  double device_ns = 0;
};

// `prompts`: ReadPrompts of the point.
absl::StatusOr<MixedStep> ReadMixedStep(const Json& point, const std::string& path, int64_t rows,
                                        const engine::StepLoad& prompts) {
  const JsonFields fields(point, path + ".");
  REPRISE_ASSIGN_OR_RETURN(const double context, PositiveUpTo(fields, "mean_context",
                                                              engine::kMaxCostContext, " tokens"));
  const auto decoding = static_cast<double>(rows);
  // The mean is of all rows; one of a prompt counts with all of its tokens.
  const double kv_tokens = context * (decoding + static_cast<double>(prompts.chunk_rows));
  if (kv_tokens < decoding + static_cast<double>(prompts.chunk_kv_tokens)) {
    return fields.Refuse("mean_context",
                         absl::StrCat("one that leaves ", rows, " rows a token beside prompts of ",
                                      prompts.chunk_kv_tokens));
  }
  MixedStep step{.load = prompts};
  step.load.tokens += static_cast<uint64_t>(rows);
  step.load.kv_tokens = static_cast<uint64_t>(std::llround(kv_tokens));
  REPRISE_ASSIGN_OR_RETURN(step.device_ns, ReadDeviceNs(point, path));
  return step;
}

// What a profile's points say of steps.
struct MeasuredPoints {
  std::vector<engine::StepCostPoint> decodes;
  std::vector<engine::PromptCostPoint> prompts;
  std::vector<MixedStep> mixed;
};

// Adds a point with prompts.
absl::Status AddPrompts(const Json& point, const std::string& path, const engine::StepLoad& prompts,
                        MeasuredPoints* measured) {
  const JsonFields fields(point, path + ".");
  REPRISE_ASSIGN_OR_RETURN(const int64_t rows, fields.Integer("rows", 0, engine::kMaxCostRows));
  if (rows != 0) {
    // Where a window hides a part of contexts, the mean does not say what decoding rows see; nor
    // may it where the profile leaves out what they attend over.
    const Json* attended = fields.Find("mean_attended");
    const Json* context = fields.Find("mean_context");
    if (attended == nullptr || context == nullptr || *attended != *context) return absl::OkStatus();
    REPRISE_ASSIGN_OR_RETURN(measured->mixed.emplace_back(),
                             ReadMixedStep(point, path, rows, prompts));
    return absl::OkStatus();
  }
  engine::PromptCostPoint read{.tokens = static_cast<uint32_t>(prompts.chunk_tokens)};
  read.attended =
      static_cast<double>(prompts.chunk_pairs) / static_cast<double>(prompts.chunk_tokens);
  REPRISE_ASSIGN_OR_RETURN(read.device_ns, ReadDeviceNs(point, path));
  measured->prompts.push_back(read);
  return absl::OkStatus();
}

// Decode steps of one context, steps of prompts alone, and of both. `path` is that of the array.
absl::StatusOr<MeasuredPoints> ReadMeasured(const Json& points, const std::string& path) {
  MeasuredPoints measured;
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string at = absl::StrCat(path, "[", i, "]");
    REPRISE_ASSIGN_OR_RETURN(const engine::StepLoad prompts, ReadPrompts(points[i], at));
    if (prompts.chunk_rows != 0) {
      REPRISE_RETURN_IF_ERROR(AddPrompts(points[i], at, prompts, &measured));
    } else if (IsUniformDecode(points[i])) {
      REPRISE_ASSIGN_OR_RETURN(measured.decodes.emplace_back(), ReadPoint(points[i], at));
    }
  }
  return measured;
}

// By how much the simulation's times of mixed steps differ from those measured; "" of none.
std::string MixedStepsText(const engine::StepCost& cost, const std::vector<MixedStep>& mixed) {
  if (mixed.empty()) return "";
  double least = 0, most = 0;
  for (size_t i = 0; i < mixed.size(); ++i) {
    const double off = static_cast<double>(cost.TimeNs(mixed[i].load)) / mixed[i].device_ns - 1;
    least = i == 0 ? off : std::min(least, off);
    most = i == 0 ? off : std::max(most, off);
  }
  return absl::StrCat("; its points of prompts beside rows that decode, ", mixed.size(),
                      ", differ from that by ", FormatPercent(least), " to ", FormatPercent(most));
}

// SimulatedDevice::prompts_note.
std::string PromptsNote(const std::string& name, const engine::StepCost& cost,
                        const MeasuredPoints& measured) {
  const std::string mixed = MixedStepsText(cost, measured.mixed);
  if (measured.prompts.empty()) {
    return absl::StrCat("simulated prompts: ", name,
                        " has no points of prompts alone, so that a prompt's token takes what one "
                        "more row takes: long chunks are too fast (docs/sim.md)",
                        mixed);
  }
  const auto [fewest, most] =
      std::minmax_element(measured.prompts.begin(), measured.prompts.end(),
                          [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  return absl::StrCat(
      "simulated prompts: as ", name, " has them of ", FormatCount(fewest->tokens), " to ",
      FormatCount(most->tokens), " tokens a step",
      cost.prompts().ns_per_pair() > 0
          ? ""
          : "; later chunks take what first ones do, as no two points of as many tokens tell what "
            "attending takes (docs/sim.md)",
      mixed);
}

// Of a pool of `bytes`; `what` says whose word it is.
absl::Status CheckPool(const std::string& what, uint64_t bytes,
                       const models::KvGeometry& geometry) {
  const uint64_t block_bytes = std::max<uint64_t>(1, geometry.BlockBytes());
  if (bytes / block_bytes <= kMaxSimulatedBlocks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": got ", bytes, " bytes, ", bytes / block_bytes, " KV blocks of ", block_bytes,
      ", allowed: at most ", kMaxSimulatedBlocks * block_bytes, " bytes, ", kMaxSimulatedBlocks,
      " blocks: their memory is not there, but what is kept of each is"));
}

absl::Status CheckSame(const std::string& what, const std::string& got,
                       const std::string& profiled) {
  if (got == profiled) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": got ", got, ", allowed: ", profiled, ", which the profile is of"));
}

}  // namespace

absl::Status SimulatedDevice::Apply(const models::ModelSource& source,
                                    engine::DecodeEngineOptions* options,
                                    engine::EngineDiagnostics* diagnostics) const {
  REPRISE_ASSIGN_OR_RETURN(const models::ModelSpec spec, models::ReadModelSpec(source));
  REPRISE_RETURN_IF_ERROR(CheckSame("architecture", spec.architecture, architecture));
  REPRISE_RETURN_IF_ERROR(CheckSame("parameters", absl::StrCat(models::NumParameters(spec)),
                                    absl::StrCat(num_parameters)));
  const runtime::DType computes =
      options->dtype_from_checkpoint ? spec.checkpoint_dtype : options->dtype;
  REPRISE_RETURN_IF_ERROR(CheckSame("dtype", std::string(runtime::NameOf(computes)), dtype));
  const runtime::DType kv = options->kv_dtype.value_or(spec.kv_cache_dtype.value_or(computes));
  if (!kv_dtype.empty())
    REPRISE_RETURN_IF_ERROR(CheckSame("kv_dtype", std::string(runtime::NameOf(kv)), kv_dtype));
  const bool is_asked_for = options->kv_cache_bytes != 0;
  if (!is_asked_for) options->kv_cache_bytes = kv_cache_bytes;
  REPRISE_RETURN_IF_ERROR(CheckPool(
      is_asked_for ? "KV cache" : name + ": engine.memory_bytes.kv_cache", options->kv_cache_bytes,
      models::KvGeometry::For(spec, std::max(1u, options->block_size), kv)));
  if (options->mixed_buckets.empty()) options->mixed_buckets = mixed_buckets;
  diagnostics->simulation = simulation.get();
  return absl::OkStatus();
}

absl::StatusOr<SimulatedDevice> ParseSimulatedDevice(const std::string& name,
                                                     std::string_view json) {
  REPRISE_ASSIGN_OR_RETURN(const Json profile, models::ParseJsonObject(json, name));
  const std::string prefix = name + ": ";
  const JsonFields fields(profile, prefix);
  REPRISE_ASSIGN_OR_RETURN(const std::string schema, fields.StringOr("schema", ""));
  if (schema != kSchema) return fields.Refuse("schema", std::string(kSchema));
  SimulatedDevice device;
  device.name = name;
  REPRISE_ASSIGN_OR_RETURN(const Json* engine, ObjectAt(profile, "engine", prefix + "engine"));
  REPRISE_RETURN_IF_ERROR(ReadEngine(*engine, prefix + "engine.", &device));
  REPRISE_ASSIGN_OR_RETURN(const Json* points, ArrayAt(profile, "points", prefix + "points"));
  REPRISE_ASSIGN_OR_RETURN(const MeasuredPoints measured, ReadMeasured(*points, prefix + "points"));
  absl::StatusOr<engine::StepCost> cost =
      engine::StepCost::Create(measured.decodes, measured.prompts);
  if (!cost.ok())
    return absl::Status(cost.status().code(), absl::StrCat(prefix, cost.status().message()));
  device.prompts_note = PromptsNote(name, *cost, measured);
  device.simulation = std::make_shared<const engine::Simulation>(
      engine::Simulation{.device_name = absl::StrCat("sim (profile of ", device.device, ")"),
                         .cost = *std::move(cost)});
  return device;
}

absl::StatusOr<SimulatedDevice> ReadSimulatedDevice(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const std::string json, models::ReadFile(path, kMaxProfileBytes));
  return ParseSimulatedDevice(path, json);
}

}  // namespace reprise::tools
