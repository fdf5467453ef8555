// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/profile_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"
#include "tools/profile/page.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr char kSchema[] = "reprise.profile/1";
constexpr std::array kSeries = {"replay", "device", "launch"};
constexpr std::array kServerSeries = {"wall", "overhead", "replay", "device", "launch"};

// ---- what has to be there ----

enum class Kind : uint8_t { kNumber, kText, kObject, kArray };

struct Need {
  const char* place;  // a JSON pointer
  Kind kind;
};
constexpr Need kOfProfile[] = {{"/engine/model/name", Kind::kText},
                               {"/engine/device/name", Kind::kText},
                               {"/engine/device/kind", Kind::kText},
                               {"/points", Kind::kArray}};
// Of an engine in the process that measured; a server may tell none of it.
constexpr Need kOfOwnProfile[] = {{"/bandwidth/read_bytes_per_s/best", Kind::kNumber}};
constexpr Need kOfOwnPoint[] = {{"/share_of_read_bandwidth", Kind::kNumber}};
// Where steps were stamped.
constexpr Need kOfStamped[] = {{"/bytes_per_s", Kind::kNumber},
                               {"/bytes/kv_read", Kind::kNumber},
                               {"/bytes/total", Kind::kNumber},
                               {"/twin/skew", Kind::kNumber},
                               {"/ops", Kind::kArray}};
constexpr Need kOfServerPoint[] = {
    {"/plain/wall_us/p50", Kind::kNumber},     {"/plain/wall_us/p90", Kind::kNumber},
    {"/plain/wall_us/p99", Kind::kNumber},     {"/plain/wall_us/mean", Kind::kNumber},
    {"/plain/overhead_us/p50", Kind::kNumber}, {"/plain/overhead_us/p90", Kind::kNumber},
    {"/plain/overhead_us/p99", Kind::kNumber}, {"/plain/overhead_us/mean", Kind::kNumber}};
constexpr Need kOfPoint[] = {{"/rows", Kind::kNumber},
                             {"/context", Kind::kNumber},
                             {"/graph", Kind::kText},
                             {"/padding_rows", Kind::kNumber},
                             {"/plain/replay_us/p50", Kind::kNumber},
                             {"/plain/replay_us/p90", Kind::kNumber},
                             {"/plain/replay_us/p99", Kind::kNumber},
                             {"/plain/replay_us/mean", Kind::kNumber},
                             {"/plain/device_us/p50", Kind::kNumber},
                             {"/plain/device_us/p90", Kind::kNumber},
                             {"/plain/device_us/p99", Kind::kNumber},
                             {"/plain/device_us/mean", Kind::kNumber},
                             {"/plain/launch_us/p50", Kind::kNumber},
                             {"/plain/launch_us/p90", Kind::kNumber},
                             {"/plain/launch_us/p99", Kind::kNumber},
                             {"/plain/launch_us/mean", Kind::kNumber},
                             {"/clock", Kind::kObject}};
constexpr Need kOfOp[] = {{"/op", Kind::kText},
                          {"/kernel", Kind::kText},
                          {"/calls", Kind::kNumber},
                          {"/net_us", Kind::kNumber},
                          {"/share", Kind::kNumber},
                          {"/net_per_call_us", Kind::kNumber},
                          {"/stamped_us/mean", Kind::kNumber},
                          {"/stamped_us/p50", Kind::kNumber},
                          {"/stamped_us/p90", Kind::kNumber},
                          {"/stamped_us/p99", Kind::kNumber}};

constexpr Need kOfTraced[] = {{"/traced/skew", Kind::kNumber},
                              {"/traced/span_us/p50", Kind::kNumber},
                              {"/traced/gap_us/p50", Kind::kNumber},
                              {"/traced/overlap_us/p50", Kind::kNumber}};
constexpr Need kOfTracedOp[] = {{"/traced/duration_us", Kind::kNumber},
                                {"/traced/exposed_us", Kind::kNumber},
                                {"/traced/gap_us", Kind::kNumber}};

bool IsOf(const json& value, Kind kind) {
  switch (kind) {
    case Kind::kNumber:
      return value.is_number();
    case Kind::kText:
      return value.is_string();
    case Kind::kObject:
      return value.is_object();
    case Kind::kArray:
      return value.is_array() && !value.empty();
  }
  return false;
}

const char* NameOf(Kind kind) {
  static constexpr std::array kNames = {"a number", "a text", "an object", "an array, not empty"};
  return kNames[static_cast<size_t>(kind)];
}

absl::Status Refuse(const std::string& path, const json* got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": got ", got == nullptr ? "none" : models::ShowJson(*got), ", allowed: ", allowed));
}

absl::Status CheckNeeds(const json& object, std::span<const Need> needs, const std::string& path) {
  for (const Need& need : needs) {
    const json::json_pointer pointer(need.place);
    const json* value = object.contains(pointer) ? &object.at(pointer) : nullptr;
    if (value != nullptr && IsOf(*value, need.kind)) continue;
    return Refuse(absl::StrCat(path, absl::StrReplaceAll(need.place + 1, {{"/", "."}})), value,
                  NameOf(need.kind));
  }
  return absl::OkStatus();
}

// A timeline names kernels by their places in ops.
absl::Status CheckTimeline(const json& point, const std::string& path) {
  const auto timeline = point.find("timeline");
  if (timeline == point.end()) return absl::OkStatus();
  constexpr Need kOfTimeline[] = {{"/op", Kind::kArray}, {"/stamped_us", Kind::kArray}};
  REPRISE_RETURN_IF_ERROR(CheckNeeds(*timeline, kOfTimeline, path + "timeline."));
  const json& ops = (*timeline)["op"];
  const size_t num_ops = point["ops"].size();
  const auto is_of_launches = [&](const char* name) {
    const json& us = (*timeline)[name];
    return us.is_array() && us.size() == ops.size() &&
           std::all_of(us.begin(), us.end(), [](const json& value) { return value.is_number(); });
  };
  const bool fits = is_of_launches("stamped_us") &&
                    (!timeline->contains("traced_us") ||
                     (timeline->contains("traced_begin_us") && is_of_launches("traced_begin_us") &&
                      is_of_launches("traced_us"))) &&
                    std::all_of(ops.begin(), ops.end(), [&](const json& op) {
                      return op.is_number_unsigned() && op.get<size_t>() < num_ops;
                    });
  if (fits) return absl::OkStatus();
  return Refuse(path + "timeline", &*timeline, "a place in ops and a time for every launch");
}

absl::Status CheckSamples(const json& point, const std::string& path) {
  const auto samples = point.find("samples_ns");
  if (samples == point.end()) return absl::OkStatus();
  constexpr Need kOfSamples[] = {
      {"/replay/0", Kind::kArray}, {"/device/0", Kind::kArray}, {"/launch/0", Kind::kArray}};
  return CheckNeeds(*samples, kOfSamples, path + "samples_ns.");
}

bool IsOfServer(const json& profile) {
  const auto server = profile.find("server");
  return server != profile.end() && server->is_object();
}

// A server need not let its client stamp steps.
bool HasStamps(const json& point) {
  const auto twin = point.find("twin");
  return twin != point.end() && twin->is_object();
}

absl::Status CheckPoint(const json& point, bool is_of_server, const std::string& path) {
  if (!point.is_object()) return Refuse(path, &point, "an object");
  REPRISE_RETURN_IF_ERROR(CheckNeeds(point, kOfPoint, path + "."));
  if (is_of_server) {
    REPRISE_RETURN_IF_ERROR(CheckNeeds(point, kOfServerPoint, path + "."));
    if (!HasStamps(point)) return CheckSamples(point, path + ".");
  } else {
    REPRISE_RETURN_IF_ERROR(CheckNeeds(point, kOfOwnPoint, path + "."));
  }
  REPRISE_RETURN_IF_ERROR(CheckNeeds(point, kOfStamped, path + "."));
  const bool is_traced = point.contains("traced") && point["traced"].is_object();
  if (is_traced) REPRISE_RETURN_IF_ERROR(CheckNeeds(point, kOfTraced, path + "."));
  for (size_t i = 0; i < point["ops"].size(); ++i) {
    const std::string at = absl::StrCat(path, ".ops[", i, "]");
    if (!point["ops"][i].is_object()) return Refuse(at, &point["ops"][i], "an object");
    REPRISE_RETURN_IF_ERROR(CheckNeeds(point["ops"][i], kOfOp, at + "."));
    if (is_traced) REPRISE_RETURN_IF_ERROR(CheckNeeds(point["ops"][i], kOfTracedOp, at + "."));
  }
  REPRISE_RETURN_IF_ERROR(CheckTimeline(point, path + "."));
  return CheckSamples(point, path + ".");
}

// ---- what is told ----

std::string PointNameOf(const json& point) {
  if (point.contains("name") && point["name"].is_string()) return point["name"].get<std::string>();
  return absl::StrCat(point["rows"].get<int64_t>(), "@", point["context"].get<int64_t>());
}

std::string OpNameOf(const json& op) {
  const std::string shape = op.contains("shape") && op["shape"].is_string()
                                ? absl::StrCat(" ", op["shape"].get<std::string>())
                                : "";
  return op["op"].get<std::string>() + shape;
}

std::string Time(const json& us) { return FormatDuration(us.get<double>() * 1e3); }

// The 99.9th percentile, which files of older versions do not tell.
std::string TailTime(const json& times) {
  return times.contains("p99_9") ? Time(times["p99_9"]) : "-";
}

// Text that HTML can hold between <script> tags: nothing in it ends them.
std::string ScriptText(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return absl::StrReplaceAll(text, {{"<", "\\u003c"}});
}

// A field of CSV: in quotes where it needs them.
std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == text.npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// A number as CSV has it; empty for what the file does not tell.
std::string Number(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->dump() : "";
}

// Likewise of what was traced of a kernel.
std::string Traced(const json& op, const char* name) {
  const bool traced = op.is_object() && op.contains("traced") && op["traced"].is_object();
  return traced ? Number(op["traced"], name) : "";
}

std::string CsvLine(const std::vector<std::string>& fields) {
  return absl::StrCat(absl::StrJoin(fields, ","), "\n");
}

std::string MarkdownRow(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

// Names to the left, numbers to the right.
std::string MarkdownHead(const std::vector<std::string>& names) {
  std::vector<std::string> rule(names.size(), "---:");
  rule.front() = "---";
  return absl::StrCat(MarkdownRow(names), "|", absl::StrJoin(rule, "|"), "|\n");
}

// The table of points that a server has run.
std::string ServerRowsOf(const json& profile) {
  std::string text = MarkdownHead({"point", "graph", "wall p50", "p90", "p99", "overhead p50",
                                   "replay p50", "launch p50", "device p50"});
  for (const json& point : profile["points"]) {
    const json& plain = point["plain"];
    absl::StrAppend(&text,
                    MarkdownRow({PointNameOf(point), point["graph"].get<std::string>(),
                                 Time(plain["wall_us"]["p50"]), Time(plain["wall_us"]["p90"]),
                                 Time(plain["wall_us"]["p99"]), Time(plain["overhead_us"]["p50"]),
                                 Time(plain["replay_us"]["p50"]), Time(plain["launch_us"]["p50"]),
                                 Time(plain["device_us"]["p50"])}));
  }
  return text;
}

// The table of a point's kernels.
std::string KernelRowsOf(const json& point) {
  const bool traced = point.contains("traced") && point["traced"].is_object();
  std::vector<std::string> head = {"kernel", "calls", "stamped", "net", "share", "per call"};
  if (traced) head.insert(head.end(), {"traced", "exposed", "gaps"});
  std::string text = MarkdownHead(head);
  for (const json& op : point["ops"]) {
    std::vector<std::string> cells = {OpNameOf(op),
                                      op["calls"].dump(),
                                      Time(op["stamped_us"]["mean"]),
                                      Time(op["net_us"]),
                                      FormatPercent(op["share"].get<double>()),
                                      Time(op["net_per_call_us"])};
    if (traced) {
      for (const char* name : {"duration_us", "exposed_us", "gap_us"})
        cells.push_back(Time(op["traced"][name]));
    }
    absl::StrAppend(&text, MarkdownRow(cells));
  }
  return text;
}

// ---- traces ----

json Metadata(const char* what, size_t process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

json Complete(const std::string& name, size_t process, int thread, double from_us, double us,
              json arguments) {
  return {{"ph", "X"},
          {"name", name},
          {"pid", process},
          {"tid", thread},
          {"ts", from_us},
          {"dur", us},
          {"args", std::move(arguments)}};
}

// A traced kernel may begin before the one before the last has ended: three threads take turns.
constexpr int kHostThread = 1, kDeviceThread = 2, kTracedThread = 3, kTracedThreads = 3;

// When each launch began and how long it ran, in the mean of traced steps.
void AppendTraced(const json& point, size_t process, json* events) {
  const json& timeline = point["timeline"];
  for (int turn = 0; turn < kTracedThreads; ++turn) {
    events->push_back(
        Metadata("thread_name", process, kTracedThread + turn, "kernels: mean traced times"));
  }
  for (size_t i = 0; i < timeline["op"].size(); ++i) {
    const json& op = point["ops"][timeline["op"][i].get<size_t>()];
    events->push_back(Complete(OpNameOf(op), process,
                               kTracedThread + static_cast<int>(i % kTracedThreads),
                               timeline["traced_begin_us"][i], timeline["traced_us"][i],
                               {{"kernel", op["kernel"]}, {"launch", i}}));
  }
}

void AppendEvents(const json& point, size_t process, json* events) {
  events->push_back(Metadata("process_name", process, 0, PointNameOf(point)));
  events->push_back(Metadata("thread_name", process, kHostThread, "host: medians of plain steps"));
  const auto timeline = point.find("timeline");
  if (timeline != point.end()) {
    events->push_back(
        Metadata("thread_name", process, kDeviceThread, "kernels: mean stamped times"));
  }
  const json& plain = point["plain"];
  // Of a server's step: when in it the replay begins is not known, so both are drawn from its
  // begin.
  if (plain.contains("wall_us")) {
    events->push_back(
        Complete("wall", process, kHostThread, 0, plain["wall_us"]["p50"], json::object()));
  }
  events->push_back(Complete("replay", process, kHostThread, 0, plain["replay_us"]["p50"],
                             {{"graph", point["graph"]}}));
  events->push_back(
      Complete("launch", process, kHostThread, 0, plain["launch_us"]["p50"], json::object()));
  if (timeline == point.end()) return;
  double at = 0;
  for (size_t i = 0; i < (*timeline)["op"].size(); ++i) {
    const json& op = point["ops"][(*timeline)["op"][i].get<size_t>()];
    const double us = (*timeline)["stamped_us"][i];
    events->push_back(Complete(OpNameOf(op), process, kDeviceThread, at, us,
                               {{"kernel", op["kernel"]}, {"launch", i}}));
    at += us;
  }
  if (timeline->contains("traced_us")) AppendTraced(point, process, events);
}

}  // namespace

absl::StatusOr<json> ParseProfile(const std::string& file, std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(json profile, models::ParseJsonObject(text, file));
  const std::string prefix = file + ": ";
  const auto schema = profile.find("schema");
  if (schema == profile.end() || *schema != kSchema) {
    return Refuse(prefix + "schema", schema == profile.end() ? nullptr : &*schema,
                  absl::StrCat("\"", kSchema, "\", as `reprise profile` writes with --json"));
  }
  REPRISE_RETURN_IF_ERROR(CheckNeeds(profile, kOfProfile, prefix));
  const bool is_of_server = IsOfServer(profile);
  if (!is_of_server) REPRISE_RETURN_IF_ERROR(CheckNeeds(profile, kOfOwnProfile, prefix));
  for (size_t i = 0; i < profile["points"].size(); ++i) {
    REPRISE_RETURN_IF_ERROR(
        CheckPoint(profile["points"][i], is_of_server, absl::StrCat(prefix, "points[", i, "]")));
  }
  return profile;
}

absl::StatusOr<json> ReadProfile(const std::string& file) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, models::ReadFile(file, kMaxFileBytes));
  return ParseProfile(file, text);
}

bool IsUniformDecode(const json& point) {
  const auto has = [&point](const char* name) {
    const auto found = point.find(name);
    return found != point.end() && !found->is_null() && !(found->is_array() && found->empty());
  };
  return !has("prompts") && !has("shortest_context");
}

std::string ProfilePage(const json& profile) {
  constexpr std::string_view kPlace = "{{profile}}";
  std::string page = kPage;
  const size_t place = page.find(kPlace);
  page.replace(place, kPlace.size(), ScriptText(profile));
  return page;
}

std::string ProfileTrace(const json& profile) {
  json events = json::array();
  for (size_t i = 0; i < profile["points"].size(); ++i)
    AppendEvents(profile["points"][i], i + 1, &events);
  const json trace = {{"traceEvents", std::move(events)},
                      {"displayTimeUnit", "ns"},
                      {"otherData",
                       {{"model", profile["engine"]["model"]["name"]},
                        {"device", profile["engine"]["device"]["name"]}}}};
  return trace.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string ProfileCsv(const json& profile) {
  std::string csv = CsvLine({"point", "rows", "context", "of", "kernel", "calls", "mean_us",
                             "p50_us", "p90_us", "p99_us", "p99_9_us", "max_us", "net_us", "share",
                             "traced_us", "exposed_us", "gap_us"});
  for (const json& point : profile["points"]) {
    const auto line = [&](const std::string& of, const json& times, const json& op) {
      const bool is_kernel = op.is_object();
      absl::StrAppend(
          &csv,
          CsvLine({PointNameOf(point), point["rows"].dump(), point["context"].dump(), Quoted(of),
                   is_kernel ? Quoted(op["kernel"].get<std::string>()) : "",
                   is_kernel ? op["calls"].dump() : "", Number(times, "mean"), Number(times, "p50"),
                   Number(times, "p90"), Number(times, "p99"), Number(times, "p99_9"),
                   Number(times, "max"), is_kernel ? op["net_us"].dump() : "",
                   is_kernel ? op["share"].dump() : "", Traced(op, "duration_us"),
                   Traced(op, "exposed_us"), Traced(op, "gap_us")}));
    };
    const auto plain = [&](const char* name) {
      line(name, point["plain"][std::string(name) + "_us"], nullptr);
    };
    if (IsOfServer(profile)) {
      std::for_each(kServerSeries.begin(), kServerSeries.end(), plain);
    } else {
      std::for_each(kSeries.begin(), kSeries.end(), plain);
    }
    for (const json& op : point["ops"]) line(OpNameOf(op), op["stamped_us"], op);
  }
  return csv;
}

std::string ProfileMarkdown(const json& profile) {
  std::string text =
      absl::StrCat("## ", profile["engine"]["model"]["name"].get<std::string>(), " on ",
                   profile["engine"]["device"]["name"].get<std::string>(), "\n\n");
  const bool is_of_server = IsOfServer(profile);
  if (is_of_server) absl::StrAppend(&text, ServerRowsOf(profile));
  if (is_of_server && !HasStamps(profile["points"][0])) return text;
  if (is_of_server) absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, MarkdownHead({"point", "graph", "replay p50", "p90", "p99", "p99.9",
                                       "launch p50", "device p50", "bytes/s", "of read"}));
  for (const json& point : profile["points"]) {
    const json& plain = point["plain"];
    absl::StrAppend(&text,
                    MarkdownRow({PointNameOf(point), point["graph"].get<std::string>(),
                                 Time(plain["replay_us"]["p50"]), Time(plain["replay_us"]["p90"]),
                                 Time(plain["replay_us"]["p99"]), TailTime(plain["replay_us"]),
                                 Time(plain["launch_us"]["p50"]), Time(plain["device_us"]["p50"]),
                                 FormatBandwidth(point["bytes_per_s"].get<double>()),
                                 point["share_of_read_bandwidth"].is_number()
                                     ? FormatPercent(point["share_of_read_bandwidth"].get<double>())
                                     : "-"}));
  }
  for (const json& point : profile["points"]) {
    absl::StrAppend(&text, "\n### Kernels of ", PointNameOf(point), "\n\n", KernelRowsOf(point));
  }
  return text;
}

}  // namespace reprise::tools
