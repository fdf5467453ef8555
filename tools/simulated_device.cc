// SPDX-License-Identifier: Apache-2.0
#include "tools/simulated_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/config/json_input.h"
#include "models/decoder.h"
#include "models/kv_pool.h"
#include "models/weights/file_input.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "tools/profile/profile_file.h"

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

absl::StatusOr<engine::StepCostPoint> ReadPoint(const Json& point, const std::string& path) {
  if (!point.is_object()) return Refuse(path, models::ShowJson(point), "an object");
  REPRISE_ASSIGN_OR_RETURN(const Json* plain, ObjectAt(point, "plain", path + ".plain"));
  REPRISE_ASSIGN_OR_RETURN(const Json* device,
                           ObjectAt(*plain, "device_us", path + ".plain.device_us"));
  const JsonFields fields(point, path + ".");
  engine::StepCostPoint read;
  REPRISE_ASSIGN_OR_RETURN(read.rows, fields.Integer("rows", 1, engine::kMaxCostRows));
  // Profiles of models without a window may leave mean_attended out.
  const char* context = fields.Find("mean_attended") != nullptr ? "mean_attended" : "mean_context";
  REPRISE_ASSIGN_OR_RETURN(read.context,
                           PositiveUpTo(fields, context, engine::kMaxCostContext, " tokens"));
  constexpr auto kMaxUs = static_cast<uint64_t>(engine::kMaxStepNs / kNsPerUs);
  REPRISE_ASSIGN_OR_RETURN(
      const double us, PositiveUpTo(JsonFields(*device, path + ".plain.device_us."), "p50", kMaxUs,
                                    ", after which an engine gives a step up"));
  read.device_ns = us * kNsPerUs;
  return read;
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
  std::vector<engine::StepCostPoint> measured;
  for (size_t i = 0; i < points->size(); ++i) {
    if (!IsUniformDecode((*points)[i])) continue;
    REPRISE_ASSIGN_OR_RETURN(const engine::StepCostPoint point,
                             ReadPoint((*points)[i], absl::StrCat(prefix, "points[", i, "]")));
    measured.push_back(point);
  }
  absl::StatusOr<engine::StepCost> cost = engine::StepCost::Create(std::move(measured));
  if (!cost.ok())
    return absl::Status(cost.status().code(), absl::StrCat(prefix, cost.status().message()));
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
