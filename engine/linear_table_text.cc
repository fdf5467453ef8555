// SPDX-License-Identifier: Apache-2.0
#include "engine/linear_table_text.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/linear/instances.h"
#include "models/config/json_input.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using kernels::KernelInstance;
using kernels::LinearTableEntry;
using kernels::WeightFormat;
using models::Json;
using models::JsonFields;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kSchema = "reprise-linear-table/1";
constexpr char kPrefix[] = "linear table: ";
constexpr int64_t kMostFeatures = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
constexpr runtime::DType kDTypes[] = {runtime::DType::kBf16, runtime::DType::kF16,
                                      runtime::DType::kF32};
constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kF16,
                                     WeightFormat::kF32,  WeightFormat::kE4m3,
                                     WeightFormat::kInt4, WeightFormat::kE4m3Rounded};

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

template <typename Values>
std::string NamesOf(const Values& values) {
  return absl::StrJoin(values, ", ",
                       [](std::string* out, auto value) { out->append(NameOf(value)); });
}

absl::Status RefuseUnknown(const Json& object, const std::string& path,
                           std::initializer_list<const char*> allowed) {
  for (const auto& [key, value] : object.items()) {
    const bool known = std::any_of(allowed.begin(), allowed.end(),
                                   [&key = key](const char* name) { return key == name; });
    if (!known)
      return absl::InvalidArgumentError(absl::StrCat(kPrefix, path, ": got key ",
                                                     models::ShowJson(key), ", allowed ",
                                                     absl::StrJoin(allowed, ", ")));
  }
  return absl::OkStatus();
}

absl::Status WantObject(const Json& value, const std::string& path) {
  if (value.is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kPrefix, path, ": got ", models::ShowJson(value), ", allowed an object"));
}

// One of these, by its name.
template <typename Values>
absl::StatusOr<typename std::decay<decltype(*std::begin(std::declval<Values&>()))>::type> ReadName(
    const JsonFields& fields, const char* key, const Values& values) {
  REPRISE_ASSIGN_OR_RETURN(const std::string name, fields.StringOr(key, ""));
  for (const auto value : values)
    if (NameOf(value) == name) return value;
  return fields.Refuse(key, NamesOf(values));
}

// The array behind a key. Errors: of less than one element, or of more than so many.
absl::StatusOr<const Json*> ReadArray(const JsonFields& fields, const char* key, size_t least,
                                      size_t most) {
  const Json* const value = fields.Find(key);
  if (value == nullptr || !value->is_array() || value->size() < least || value->size() > most)
    return fields.Refuse(key, absl::StrCat("an array of ", least, " to ", most));
  return value;
}

// 0 of weights without scales.
absl::StatusOr<int32_t> ReadGroupSize(const JsonFields& fields, WeightFormat format) {
  std::vector<int64_t> allowed = {0};
  if (kernels::IsScaled(format)) allowed = {kernels::kScaleInputs};
  if (format == WeightFormat::kInt4)
    allowed = {kernels::kLeastScaleInputs, kernels::kPackedTileInputs, kernels::kScaleInputs};
  REPRISE_ASSIGN_OR_RETURN(const int64_t size,
                           fields.IntegerOr("group_size", 0, 0, kernels::kScaleInputs));
  if (std::find(allowed.begin(), allowed.end(), size) == allowed.end())
    return fields.Refuse(
        "group_size", absl::StrCat(absl::StrJoin(allowed, ", "), " with ", View(NameOf(format))));
  return static_cast<int32_t>(size);
}

// A kernel for such weights and activations, by its name.
absl::StatusOr<const KernelInstance*> ReadKernel(const JsonFields& fields, WeightFormat format,
                                                 runtime::DType dtype) {
  REPRISE_ASSIGN_OR_RETURN(const std::string name, fields.StringOr("kernel", ""));
  std::vector<absl::string_view> names;
  for (const KernelInstance& instance : kernels::kLinearInstances) {
    if (instance.weight != format || instance.activation != kernels::ElementFormatOf(dtype))
      continue;
    if (instance.symbol == name) return &instance;
    names.push_back(View(instance.symbol));
  }
  return fields.Refuse("kernel", names.empty()
                                     ? absl::StrCat("none: no kernel of ", View(NameOf(dtype)),
                                                    " reads ", View(NameOf(format)))
                                     : absl::StrJoin(names, ", "));
}

// The ranges of one shape, whose numbers `entry` has.
absl::Status ReadRanges(const Json& ranges, const std::string& path, runtime::DType dtype,
                        WeightFormat format, LinearTableEntry entry, kernels::LinearTable* table) {
  int64_t before = 0;  // rows of the range ahead
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::string place = absl::StrCat(path, ".kernels[", i, "]");
    REPRISE_RETURN_IF_ERROR(WantObject(ranges[i], place));
    REPRISE_RETURN_IF_ERROR(RefuseUnknown(ranges[i], place, {"rows_from", "rows_to", "kernel"}));
    const JsonFields fields(ranges[i], absl::StrCat(kPrefix, place, "."));
    // Out of order, or over each other: they begin where those before have ended.
    REPRISE_ASSIGN_OR_RETURN(const int64_t from,
                             fields.Integer("rows_from", before + 1, kMostRows));
    REPRISE_ASSIGN_OR_RETURN(const int64_t to, fields.Integer("rows_to", from, kMostRows));
    REPRISE_ASSIGN_OR_RETURN(entry.kernel, ReadKernel(fields, format, dtype));
    entry.first_rows = static_cast<uint32_t>(from);
    entry.last_rows = static_cast<uint32_t>(to);
    table->push_back(entry);
    before = to;
  }
  return absl::OkStatus();
}

absl::Status ReadLayer(const Json& layer, const std::string& path, NamedLinearTable* named) {
  REPRISE_RETURN_IF_ERROR(WantObject(layer, path));
  REPRISE_RETURN_IF_ERROR(RefuseUnknown(
      layer, path, {"weights", "group_size", "out_features", "in_features", "kernels"}));
  const JsonFields fields(layer, absl::StrCat(kPrefix, path, "."));
  REPRISE_ASSIGN_OR_RETURN(const WeightFormat format, ReadName(fields, "weights", kFormats));
  LinearTableEntry entry;
  REPRISE_ASSIGN_OR_RETURN(entry.group_size, ReadGroupSize(fields, format));
  REPRISE_ASSIGN_OR_RETURN(entry.out_features, fields.Integer("out_features", 1, kMostFeatures));
  REPRISE_ASSIGN_OR_RETURN(entry.in_features, fields.Integer("in_features", 1, kMostFeatures));
  for (const LinearTableEntry& other : named->table) {
    if (other.out_features == entry.out_features && other.in_features == entry.in_features &&
        other.group_size == entry.group_size && other.kernel->weight == format)
      return absl::InvalidArgumentError(
          absl::StrCat(kPrefix, path, ": got ", entry.out_features, "x", entry.in_features, " of ",
                       View(NameOf(format)), " again, allowed each shape of a format once"));
  }
  REPRISE_ASSIGN_OR_RETURN(const Json* const ranges,
                           ReadArray(fields, "kernels", 1, kMaxLinearTableRanges));
  return ReadRanges(*ranges, path, named->dtype, format, entry, &named->table);
}

absl::Status ReadMadeFor(const JsonFields& fields, NamedLinearTable* named) {
  const Json* const value = fields.Find("made_for");
  if (value == nullptr || !value->is_object()) return fields.Refuse("made_for", "an object");
  REPRISE_RETURN_IF_ERROR(RefuseUnknown(*value, "made_for", {"device", "dtype"}));
  const JsonFields made_for(*value, absl::StrCat(kPrefix, "made_for."));
  REPRISE_ASSIGN_OR_RETURN(named->device, made_for.StringOr("device", ""));
  if (named->device.empty()) return made_for.Refuse("device", "the name of a device");
  REPRISE_ASSIGN_OR_RETURN(named->dtype, ReadName(made_for, "dtype", kDTypes));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NamedLinearTable> ParseLinearTable(std::string_view text) {
  if (text.size() > kMaxLinearTableBytes)
    return absl::InvalidArgumentError(
        absl::StrCat(kPrefix, "got ", text.size(), " bytes, allowed ", kMaxLinearTableBytes));
  REPRISE_ASSIGN_OR_RETURN(const Json json, models::ParseJsonObject(text, "linear table"));
  REPRISE_RETURN_IF_ERROR(
      RefuseUnknown(json, "the text", {"schema", "made_for", "layers", "notes"}));
  const JsonFields fields(json, kPrefix);
  REPRISE_ASSIGN_OR_RETURN(const std::string schema, fields.StringOr("schema", ""));
  if (schema != kSchema) return fields.Refuse("schema", absl::StrCat("\"", View(kSchema), "\""));
  NamedLinearTable named;
  REPRISE_RETURN_IF_ERROR(ReadMadeFor(fields, &named));
  REPRISE_ASSIGN_OR_RETURN(const Json* const layers,
                           ReadArray(fields, "layers", 0, kMaxLinearTableLayers));
  for (size_t i = 0; i < layers->size(); ++i)
    REPRISE_RETURN_IF_ERROR(ReadLayer((*layers)[i], absl::StrCat("layers[", i, "]"), &named));
  return named;
}

std::string LinearTableText(const NamedLinearTable& named, std::string_view notes) {
  OrderedJson out = OrderedJson::object();
  out["schema"] = kSchema;
  out["made_for"] = {{"device", named.device}, {"dtype", runtime::NameOf(named.dtype)}};
  OrderedJson layers = OrderedJson::array();
  const LinearTableEntry* last = nullptr;
  for (const LinearTableEntry& entry : named.table) {
    const bool same = last != nullptr && last->out_features == entry.out_features &&
                      last->in_features == entry.in_features &&
                      last->group_size == entry.group_size &&
                      last->kernel->weight == entry.kernel->weight;
    if (!same) {
      OrderedJson layer = OrderedJson::object();
      layer["weights"] = NameOf(entry.kernel->weight);
      layer["group_size"] = entry.group_size;
      layer["out_features"] = entry.out_features;
      layer["in_features"] = entry.in_features;
      layer["kernels"] = OrderedJson::array();
      layers.push_back(std::move(layer));
    }
    OrderedJson range = OrderedJson::object();
    range["rows_from"] = entry.first_rows;
    range["rows_to"] = entry.last_rows;
    range["kernel"] = entry.kernel->symbol;
    layers.back()["kernels"].push_back(std::move(range));
    last = &entry;
  }
  out["layers"] = std::move(layers);
  if (!notes.empty()) out["notes"] = OrderedJson::parse(notes.begin(), notes.end(), nullptr, false);
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::Status CheckTableSite(const NamedLinearTable& named, std::string_view device,
                            runtime::DType dtype) {
  const auto refuse = [](const char* what, absl::string_view made_for, absl::string_view here) {
    return absl::FailedPreconditionError(
        absl::StrCat(kPrefix, "made for ", what, " '", made_for, "', got '", here,
                     "'; allowed: a table that was made for this"));
  };
  if (named.device != device) return refuse("device", named.device, View(device));
  if (named.dtype != dtype) return refuse("dtype", View(NameOf(named.dtype)), View(NameOf(dtype)));
  return absl::OkStatus();
}

}  // namespace reprise::engine
