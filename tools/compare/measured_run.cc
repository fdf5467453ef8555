// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/measured_run.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using models::Json;
using models::JsonFields;

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr int64_t kMostCount = int64_t{1} << 40;

absl::Status Refuse(const std::string& what, const Json* got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": got ", got == nullptr ? "none" : models::ShowJson(*got), ", allowed: ", allowed));
}

// A field that has to be there, of a type.
absl::StatusOr<const Json*> Field(const Json& object, const char* name, const std::string& path,
                                  bool is_array) {
  const auto found = object.find(name);
  const std::string allowed = is_array ? "an array" : "an object";
  const Json* value = found == object.end() ? nullptr : &*found;
  if (value == nullptr || (is_array ? !value->is_array() : !value->is_object()))
    return Refuse(path + name, value, allowed);
  return value;
}
absl::StatusOr<const Json*> ObjectIn(const Json& object, const char* name,
                                     const std::string& path) {
  return Field(object, name, path, /*is_array=*/false);
}

// The objects of an array that is not empty; each with its path, which ends in a dot.
struct Item {
  const Json* json;
  std::string path;
};
absl::StatusOr<std::vector<Item>> ObjectsIn(const Json& object, const char* name,
                                            const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const Json* array, Field(object, name, path, /*is_array=*/true));
  if (array->empty()) return Refuse(path + name, array, "one or more");
  std::vector<Item> items;
  for (size_t i = 0; i < array->size(); ++i) {
    const std::string at = absl::StrCat(path, name, "[", i, "]");
    if (!(*array)[i].is_object()) return Refuse(at, &(*array)[i], "an object");
    items.push_back({&(*array)[i], at + "."});
  }
  return items;
}

absl::StatusOr<std::vector<double>> Numbers(const Json& array, const std::string& path,
                                            double scale) {
  if (!array.is_array() || array.empty()) return Refuse(path, &array, "an array of numbers");
  std::vector<double> numbers;
  for (size_t i = 0; i < array.size(); ++i) {
    if (!array[i].is_number() || array[i].get<double>() < 0)
      return Refuse(absl::StrCat(path, "[", i, "]"), &array[i], "a number of at least 0");
    numbers.push_back(array[i].get<double>() * scale);
  }
  return numbers;
}

// "samples_ns": an array for each round.
absl::StatusOr<RoundSamples> ReadSamples(const Json& object, const char* name,
                                         const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const Json* rounds, Field(object, name, path, /*is_array=*/true));
  if (rounds->empty()) return Refuse(path + name, rounds, "an array for each round");
  RoundSamples samples;
  for (size_t i = 0; i < rounds->size(); ++i) {
    REPRISE_ASSIGN_OR_RETURN(std::vector<double> round,
                             Numbers((*rounds)[i], absl::StrCat(path, name, "[", i, "]"), kNsToUs));
    samples.push_back(std::move(round));
  }
  return samples;
}

// Medians of rounds: a sample in each.
absl::StatusOr<RoundSamples> ReadMedians(const Json& object, const char* name,
                                         const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const Json* rounds, Field(object, name, path, /*is_array=*/true));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<double> medians, Numbers(*rounds, path + name, 1));
  RoundSamples samples;
  for (const double median : medians) samples.push_back({median});
  return samples;
}

absl::StatusOr<MeasuredKernel> ReadKernel(const Item& item, bool has_samples) {
  const JsonFields fields(*item.json, item.path);
  MeasuredKernel kernel;
  REPRISE_ASSIGN_OR_RETURN(kernel.name, fields.StringOr("op", ""));
  if (kernel.name.empty()) return fields.Refuse("op", "a name");
  REPRISE_ASSIGN_OR_RETURN(kernel.kernel, fields.StringOr("kernel", ""));
  REPRISE_ASSIGN_OR_RETURN(const std::string shape, fields.StringOr("shape", ""));
  if (!shape.empty()) absl::StrAppend(&kernel.name, " ", shape);
  REPRISE_ASSIGN_OR_RETURN(const int64_t calls, fields.Integer("calls", 1, 1 << 30));
  kernel.calls = static_cast<uint32_t>(calls);
  if (const Json* net = fields.Find("net_us"); net == nullptr || !net->is_number())
    return fields.Refuse("net_us", "a number");
  kernel.net_us = (*item.json)["net_us"].get<double>();
  if (!has_samples) return kernel;
  REPRISE_ASSIGN_OR_RETURN(kernel.stamped_us, ReadSamples(*item.json, "samples_ns", item.path));
  return kernel;
}

// `has_kernels`: as an engine's own profile has, and one of a server that let its client.
absl::StatusOr<MeasuredPoint> ReadProfilePoint(const Item& item, bool has_samples,
                                               bool has_kernels) {
  const JsonFields fields(*item.json, item.path);
  MeasuredPoint point;
  // Files from before there were prompts tell no name.
  REPRISE_ASSIGN_OR_RETURN(point.name, fields.StringOr("name", ""));
  if (point.name.empty()) {
    REPRISE_ASSIGN_OR_RETURN(const int64_t rows, fields.Integer("rows", 1, kMostCount));
    REPRISE_ASSIGN_OR_RETURN(const int64_t context, fields.Integer("context", 1, kMostCount));
    point.name = absl::StrCat(rows, "@", context);
  }
  if (has_samples) {
    REPRISE_ASSIGN_OR_RETURN(const Json* samples, ObjectIn(*item.json, "samples_ns", item.path));
    // The last two are of a server's steps alone.
    for (const char* name : {"replay", "device", "launch", "wall", "overhead"}) {
      const bool is_extra =
          std::string_view(name) == "wall" || std::string_view(name) == "overhead";
      if (is_extra && !samples->contains(name)) continue;
      REPRISE_ASSIGN_OR_RETURN(RoundSamples us,
                               ReadSamples(*samples, name, item.path + "samples_ns."));
      // What a launch costs is in replay, and the overhead is in wall.
      const bool is_part =
          std::string_view(name) == "launch" || std::string_view(name) == "overhead";
      point.series.push_back({.name = name, .guards = !is_part, .us = std::move(us)});
    }
  } else {
    REPRISE_ASSIGN_OR_RETURN(RoundSamples us,
                             ReadMedians(*item.json, "round_replay_us", item.path));
    point.series.push_back({.name = "replay", .guards = true, .us = std::move(us)});
  }
  if (has_kernels) {
    REPRISE_ASSIGN_OR_RETURN(const std::vector<Item> ops, ObjectsIn(*item.json, "ops", item.path));
    for (const Item& op : ops) {
      REPRISE_ASSIGN_OR_RETURN(MeasuredKernel kernel, ReadKernel(op, has_samples));
      point.kernels.push_back(std::move(kernel));
    }
  }
  REPRISE_ASSIGN_OR_RETURN(const Json* clock, ObjectIn(*item.json, "clock", item.path));
  if (const auto sm = clock->find("sm_mhz"); sm != clock->end() && sm->is_number())
    point.sm_clock_mhz = sm->get<double>();
  return point;
}

bool IsOfServer(const Json& json) {
  const auto server = json.find("server");
  return server != json.end() && server->is_object();
}

// A server may tell none.
bool HasKernels(const Json& point) {
  const auto ops = point.find("ops");
  return ops != point.end() && ops->is_array() && !ops->empty();
}

absl::Status ReadProfile(const Json& json, const std::string& prefix, MeasuredRun* run) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<Item> points, ObjectsIn(json, "points", prefix));
  if (!points[0].json->contains("samples_ns") && !points[0].json->contains("round_replay_us")) {
    return Refuse(points[0].path + "samples_ns", nullptr,
                  "a profile that keeps its samples, or the medians of its rounds; it was written "
                  "before there were any: measure again");
  }
  run->has_samples = points[0].json->contains("samples_ns");
  for (const Item& item : points) {
    REPRISE_ASSIGN_OR_RETURN(
        MeasuredPoint point,
        ReadProfilePoint(item, run->has_samples, !IsOfServer(json) || HasKernels(*item.json)));
    run->points.push_back(std::move(point));
  }
  return absl::OkStatus();
}

// The name of a benchmark's cell: its own, or what it is of.
absl::StatusOr<std::string> NameOfCell(const Item& cell) {
  const JsonFields fields(*cell.json, cell.path);
  REPRISE_ASSIGN_OR_RETURN(std::string name, fields.StringOr("name", ""));
  if (!name.empty()) return name;
  REPRISE_ASSIGN_OR_RETURN(const int64_t rows, fields.Integer("rows", 1, kMostCount));
  REPRISE_ASSIGN_OR_RETURN(const std::string shape, fields.StringOr("shape", ""));
  if (shape.empty()) return fields.Refuse("shape", "a name");
  return absl::StrCat(shape, " with ", rows, rows == 1 ? " row" : " rows");
}

absl::Status AddMedians(const Json& of, const std::string& name, const std::string& path,
                        MeasuredPoint* point) {
  REPRISE_ASSIGN_OR_RETURN(RoundSamples us, ReadMedians(of, "round_us", path));
  point->series.push_back({.name = name, .guards = true, .us = std::move(us)});
  return absl::OkStatus();
}

absl::Status ReadBench(const Json& json, const std::string& prefix, MeasuredRun* run) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<Item> cells, ObjectsIn(json, "cells", prefix));
  for (const Item& cell : cells) {
    MeasuredPoint& point = run->points.emplace_back();
    REPRISE_ASSIGN_OR_RETURN(point.name, NameOfCell(cell));
    if (cell.json->contains("candidates")) {
      REPRISE_ASSIGN_OR_RETURN(const std::vector<Item> candidates,
                               ObjectsIn(*cell.json, "candidates", cell.path));
      for (const Item& candidate : candidates) {
        const JsonFields fields(*candidate.json, candidate.path);
        REPRISE_ASSIGN_OR_RETURN(const std::string name, fields.StringOr("name", ""));
        if (name.empty()) return fields.Refuse("name", "a name");
        REPRISE_RETURN_IF_ERROR(AddMedians(*candidate.json, name, candidate.path, &point));
      }
      continue;
    }
    for (const char* name : {"device", "wall"}) {
      REPRISE_ASSIGN_OR_RETURN(const Json* times, ObjectIn(*cell.json, name, cell.path));
      REPRISE_RETURN_IF_ERROR(AddMedians(*times, name, absl::StrCat(cell.path, name, "."), &point));
    }
  }
  return absl::OkStatus();
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : models::ShowJson(value);
}

// What stands at `pointer`, and below it where that is an object.
void AddFacts(const Json& json, const std::string& name, std::vector<MeasuredFact>* facts) {
  if (!json.is_object()) {
    facts->push_back({name, TextOf(json)});
    return;
  }
  for (const auto& [key, value] : json.items())
    AddFacts(value, absl::StrCat(name, ".", key), facts);
}

// "int4 in groups of 64, bf16": how the shapes of `bench linear` store their weights, each way
// once; "" where the file does not say.
std::string WeightFormatsOf(const Json& json) {
  std::vector<std::string> ways;
  for (const Json& shape : json.value("shapes", Json::array())) {
    if (!shape.is_object() || !shape.contains("weight_format")) continue;
    std::string way = TextOf(shape["weight_format"]);
    if (const Json group = shape.value("group_size", Json()); !group.is_null())
      absl::StrAppend(&way, " in groups of ", TextOf(group));
    if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(std::move(way));
  }
  return absl::StrJoin(ways, ", ");
}

std::vector<MeasuredFact> FactsOf(const Json& json) {
  // Of every kind of file; a kind has some of them.
  static constexpr std::array kPlaces = {"/engine/device/kind",
                                         "/engine/device/name",
                                         "/engine/device/driver",
                                         "/device/kind",
                                         "/device/name",
                                         "/device/driver",
                                         "/host",
                                         "/version",
                                         "/engine/model/name",
                                         "/engine/model/parameters",
                                         "/engine/dtype",
                                         "/engine/weight_dtype",
                                         "/engine/kv_dtype",
                                         "/engine/linear",
                                         "/engine/linear_table_ranges",
                                         "/engine/step_kernel_rows",
                                         "/engine/pool/block_size",
                                         "/model",
                                         "/dtype",
                                         "/shape",
                                         "/tree/file",
                                         "/settings"};
  std::vector<MeasuredFact> facts;
  for (const char* place : kPlaces) {
    const Json::json_pointer pointer(place);
    if (!json.contains(pointer)) continue;
    std::string name = place + 1;
    for (char& c : name) c = c == '/' ? '.' : c;
    AddFacts(json.at(pointer), name, &facts);
  }
  if (std::string weights = WeightFormatsOf(json); !weights.empty())
    facts.push_back({"weight_format", std::move(weights)});
  if (json.contains("settings"))
    facts.push_back({"measured", IsOfServer(json) ? "through a server" : "in this process"});
  // Which points there are is compared point by point.
  std::erase_if(facts, [](const MeasuredFact& fact) {
    return fact.name == "settings.rows" || fact.name == "settings.contexts" ||
           fact.name == "settings.points" || fact.name == "settings.recorded";
  });
  return facts;
}

std::string TextAt(const Json& json, const char* place) {
  const Json::json_pointer pointer(place);
  return json.contains(pointer) && json.at(pointer).is_string()
             ? json.at(pointer).get<std::string>()
             : "";
}

}  // namespace

absl::StatusOr<MeasuredRun> ParseMeasuredRun(const std::string& file, std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const Json json, models::ParseJsonObject(text, file));
  const std::string prefix = file + ": ";
  const JsonFields fields(json, prefix);
  MeasuredRun run;
  run.file = file;
  REPRISE_ASSIGN_OR_RETURN(run.schema, fields.StringOr("schema", ""));
  if (run.schema == "reprise.profile/1") {
    REPRISE_RETURN_IF_ERROR(ReadProfile(json, prefix, &run));
  } else if (run.schema == "reprise.bench_step/1" || run.schema == "reprise.bench_linear/1" ||
             run.schema == "reprise.bench_attention/1") {
    REPRISE_RETURN_IF_ERROR(ReadBench(json, prefix, &run));
  } else {
    return fields.Refuse("schema",
                         "reprise.profile/1, reprise.bench_step/1, reprise.bench_linear/1 or "
                         "reprise.bench_attention/1, as `reprise profile` and `reprise bench` "
                         "write with --json");
  }
  run.device = TextAt(json, "/engine/device/name");
  if (run.device.empty()) run.device = TextAt(json, "/device/name");
  run.date = TextAt(json, "/date");
  run.commit = TextAt(json, "/commit");
  run.error = TextAt(json, "/error");
  run.facts = FactsOf(json);
  const Json::json_pointer read("/bandwidth/read_bytes_per_s/best");
  if (json.contains(read) && json.at(read).is_number())
    run.read_bytes_per_s = json.at(read).get<double>();
  return run;
}

absl::StatusOr<MeasuredRun> ReadMeasuredRun(const std::string& file) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, models::ReadFile(file, kMaxFileBytes));
  return ParseMeasuredRun(file, text);
}

}  // namespace reprise::tools
