// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/step_points.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/resolved_options.h"
#include "models/kv_pool.h"
#include "models/model_source.h"
#include "runtime/status_macros.h"
#include "tools/units.h"

namespace reprise::tools {

namespace {

// Every row that a step has needs a place, and its tokens a graph.
absl::Status CheckSize(const StepPoint& point, const kernels::StepLimits& limits,
                       uint32_t max_bucket) {
  const uint64_t allowed =
      point.is_decode() ? std::min(limits.max_rows, max_bucket) : limits.max_rows;
  if (point.num_rows() < 1 || point.num_rows() > allowed) {
    return absl::OutOfRangeError(
        absl::StrCat("rows: got ", point.num_rows(), ", allowed: 1 to ", allowed,
                     allowed == limits.max_rows ? ", the most that can be resident (--max-rows)"
                                                : ", the largest decode bucket"));
  }
  if (point.is_decode() || point.num_tokens() <= limits.max_prompt_tokens) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("tokens: got ", point.num_tokens(), " in ", NameOf(point), ", allowed: 1 to ",
                   limits.max_prompt_tokens, ", the largest mixed bucket"));
}

absl::Status CheckLengths(const StepPoint& point, const kernels::StepLimits& limits) {
  const auto refuse = [&limits](uint64_t got, int least) {
    return absl::OutOfRangeError(absl::StrCat("context: got ", got, " tokens, allowed: ", least,
                                              " to ", limits.max_context_length,
                                              ", the limit of a row"));
  };
  for (const uint32_t context : {point.shortest_context(), point.context}) {
    if (point.rows > 0 && (context < 2 || context > limits.max_context_length))
      return refuse(context, 2);
  }
  for (const uint32_t tokens : point.prompts) {
    if (tokens < 1 || tokens > limits.max_context_length) return refuse(tokens, 1);
  }
  return absl::OkStatus();
}

constexpr uint64_t kMostRows = 1u << 16, kMostContext = 1u << 30;

// Two counts, such as "8@512"; unset where they are not.
std::optional<std::pair<uint32_t, uint32_t>> ReadPair(const std::string& text, char between,
                                                      uint64_t least) {
  const std::vector<std::string> sides = absl::StrSplit(text, between);
  if (sides.size() != 2) return std::nullopt;
  const auto first = ParseCountList(sides[0], 1, kMostRows);
  const auto second = ParseCountList(sides[1], least, kMostContext);
  if (!first.ok() || !second.ok() || first->size() != 1 || second->size() != 1) return std::nullopt;
  return std::pair(static_cast<uint32_t>((*first)[0]), static_cast<uint32_t>((*second)[0]));
}

// "8@512", "8@64..512".
bool ReadRows(const std::string& text, StepPoint* point) {
  const size_t at = text.find('@'), dots = text.find("..");
  if (dots == std::string::npos) {
    const auto pair = ReadPair(text, '@', 2);
    if (pair) std::tie(point->rows, point->context) = *pair;
    return pair.has_value();
  }
  const auto shortest = ReadPair(text.substr(0, dots), '@', 2);
  const auto longest = ReadPair(text.substr(0, at + 1) + text.substr(dots + 2), '@', 2);
  if (!shortest || !longest || shortest->second >= longest->second) return false;
  std::tie(point->rows, point->context) = *longest;
  point->shortest = shortest->second;
  return true;
}

bool ReadPrompts(const std::string& text, StepPoint* point) {
  // A row of one token decodes.
  const auto pair = ReadPair(text, 'x', 2);
  if (!pair || point->num_rows() + pair->first > kMostRows) return false;
  point->prompts.insert(point->prompts.end(), pair->first, pair->second);
  return true;
}

}  // namespace

uint64_t StepPoint::num_tokens() const {
  return std::accumulate(prompts.begin(), prompts.end(), uint64_t{rows});
}

std::vector<uint32_t> StepPoint::contexts() const {
  std::vector<uint32_t> lengths(rows, context);
  if (shortest == 0) return lengths;
  for (uint32_t i = 0; i < rows; ++i) {
    const uint64_t span = uint64_t{context - shortest} * i / std::max(rows - 1, 1u);
    lengths[i] = context - static_cast<uint32_t>(span);
  }
  std::shuffle(lengths.begin(), lengths.end(), std::mt19937_64(3));
  return lengths;
}

std::string PromptsName(const StepPoint& point) {
  std::vector<std::string> names;
  for (auto begin = point.prompts.begin(); begin != point.prompts.end();) {
    const auto end = std::find_if(begin, point.prompts.end(),
                                  [begin](uint32_t tokens) { return tokens != *begin; });
    names.push_back(absl::StrCat(end - begin, "x", *begin));
    begin = end;
  }
  return absl::StrJoin(names, "+");
}

std::string NameOf(const StepPoint& point) {
  if (point.rows == 0) return PromptsName(point);
  const std::string shortest = point.shortest == 0 ? "" : absl::StrCat(point.shortest, "..");
  const std::string rows = absl::StrCat(point.rows, "@", shortest, point.context);
  return point.is_decode() ? rows : absl::StrCat(rows, "+", PromptsName(point));
}

uint64_t BlocksOf(const StepPoint& point, uint32_t block_size) {
  const auto blocks = [block_size](uint64_t tokens) {
    return (tokens + block_size - 1) / block_size;
  };
  uint64_t needed = point.rows * blocks(point.context);
  if (point.shortest != 0) {
    needed = 0;
    for (const uint32_t context : point.contexts()) needed += blocks(context);
  }
  for (const uint32_t tokens : point.prompts) needed += blocks(tokens);
  return needed;
}

absl::StatusOr<StepPoint> ParseStepPoint(std::string_view text) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '+');
  StepPoint point{.rows = 0, .context = 0};
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_rows = i == 0 && parts[i].find('@') != std::string::npos;
    if (is_rows ? ReadRows(parts[i], &point) : ReadPrompts(parts[i], &point)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "point: got \"", std::string(text),
        "\", allowed: <rows>@<context>, such as 8@512, 1@16k or 8@64..512, at least 1 row and 2 "
        "tokens; and "
        "prompts of 2 tokens at least, <count>x<tokens>, alone or beside them: 1x256 or "
        "8@512+1x256"));
  }
  return point;
}

uint64_t BlocksNeeded(std::span<const StepPoint> points, uint32_t block_size) {
  uint64_t needed = 0;
  for (const StepPoint& point : points) needed = std::max(needed, BlocksOf(point, block_size));
  return needed;
}

absl::Status CheckPoints(std::span<const StepPoint> points, const kernels::StepLimits& limits,
                         uint32_t max_bucket, uint32_t block_size, uint64_t usable_blocks) {
  for (const StepPoint& point : points) {
    REPRISE_RETURN_IF_ERROR(CheckSize(point, limits, max_bucket));
    REPRISE_RETURN_IF_ERROR(CheckLengths(point, limits));
  }
  if (usable_blocks == 0) return absl::OkStatus();
  for (const StepPoint& point : points) {
    const uint64_t needed = BlocksOf(point, block_size);
    if (needed <= usable_blocks) continue;
    const std::string prompts =
        point.is_decode() ? "" : absl::StrCat(" and ", point.prompts.size(), " prompts");
    return absl::ResourceExhaustedError(
        absl::StrCat(point.rows, point.rows == 1 ? " row of " : " rows of ", point.context,
                     " tokens", prompts, " need ", needed, " blocks of ", block_size,
                     " tokens; the pool has ", usable_blocks, " (--kv-cache)"));
  }
  return absl::OkStatus();
}

absl::Status FitPool(std::span<const StepPoint> points, EngineFlags* flags) {
  engine::DecodeEngineOptions& engine = flags->engine;
  REPRISE_ASSIGN_OR_RETURN(const models::ModelSpec model, models::ReadModelSpec(flags->source));
  REPRISE_ASSIGN_OR_RETURN(const engine::ResolvedOptions resolved,
                           engine::ResolveOptions(engine, model, {}));
  const auto geometry =
      models::KvGeometry::For(model, engine.block_size, *resolved.options.kv_dtype);
  const std::vector<int64_t>& buckets = resolved.options.decode_buckets;
  const uint64_t pool_blocks = engine.kv_cache_bytes / geometry.BlockBytes();
  if (engine.kv_cache_bytes != 0 && pool_blocks < 2) return absl::OkStatus();  // the engine says it
  // Which mixed buckets there are otherwise depends on the device, which is not known yet.
  kernels::StepLimits limits = resolved.limits;
  if (engine.mixed_buckets.empty()) limits.max_prompt_tokens = std::numeric_limits<uint32_t>::max();
  REPRISE_RETURN_IF_ERROR(CheckPoints(
      points, limits, static_cast<uint32_t>(*std::max_element(buckets.begin(), buckets.end())),
      engine.block_size, pool_blocks == 0 ? 0 : pool_blocks - 1));
  if (engine.kv_cache_bytes == 0) {
    // And the scratch block.
    engine.kv_cache_bytes = (BlocksNeeded(points, engine.block_size) + 1) * geometry.BlockBytes();
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
