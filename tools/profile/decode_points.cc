// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/decode_points.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/resolved_options.h"
#include "models/kv_pool.h"
#include "models/model_source.h"
#include "runtime/status_macros.h"
#include "tools/profile/decode_rows.h"
#include "tools/units.h"

namespace reprise::tools {

std::string NameOf(const DecodePoint& point) {
  return absl::StrCat(point.rows, "@", point.context);
}

absl::StatusOr<DecodePoint> ParseDecodePoint(std::string_view text) {
  constexpr uint64_t kMostRows = 1u << 16, kMostContext = 1u << 30;
  const size_t at = text.find('@');
  if (at != text.npos) {
    const auto rows = ParseCountList(text.substr(0, at), 1, kMostRows);
    const auto context = ParseCountList(text.substr(at + 1), 2, kMostContext);
    if (rows.ok() && context.ok() && rows->size() == 1 && context->size() == 1)
      return DecodePoint{static_cast<uint32_t>((*rows)[0]), static_cast<uint32_t>((*context)[0])};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("point: got \"", std::string(text),
                   "\", allowed: <rows>@<context>, such as 8@512 or 1@16k, at least 1 row and 2 "
                   "tokens"));
}

uint64_t BlocksNeeded(std::span<const DecodePoint> points, uint32_t block_size) {
  uint64_t needed = 0;
  for (const DecodePoint& point : points)
    needed = std::max(needed, BlocksOf(point.rows, point.context, block_size));
  return needed;
}

absl::Status CheckPoints(std::span<const DecodePoint> points, const kernels::StepLimits& limits,
                         uint32_t max_bucket, uint32_t block_size, uint64_t usable_blocks) {
  for (const DecodePoint& point : points) {
    const uint32_t allowed = std::min(limits.max_rows, max_bucket);
    if (point.rows < 1 || point.rows > allowed) {
      return absl::OutOfRangeError(
          absl::StrCat("rows: got ", point.rows, ", allowed: 1 to ", allowed,
                       allowed == limits.max_rows ? ", the most that can be resident (--max-rows)"
                                                  : ", the largest decode bucket"));
    }
    if (point.context < 2 || point.context > limits.max_context_length) {
      return absl::OutOfRangeError(absl::StrCat("context: got ", point.context,
                                                " tokens, allowed: 2 to ",
                                                limits.max_context_length, ", the limit of a row"));
    }
  }
  if (usable_blocks == 0) return absl::OkStatus();
  for (const DecodePoint& point : points) {
    const uint64_t needed = BlocksOf(point.rows, point.context, block_size);
    if (needed <= usable_blocks) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat(point.rows, point.rows == 1 ? " row of " : " rows of ", point.context,
                     " tokens need ", needed, " blocks of ", block_size, " tokens; the pool has ",
                     usable_blocks, " (--kv-cache)"));
  }
  return absl::OkStatus();
}

absl::Status FitPool(std::span<const DecodePoint> points, EngineFlags* flags) {
  engine::DecodeEngineOptions& engine = flags->engine;
  REPRISE_ASSIGN_OR_RETURN(const models::ModelSpec model, models::ReadModelSpec(flags->source));
  REPRISE_ASSIGN_OR_RETURN(const engine::ResolvedOptions resolved,
                           engine::ResolveOptions(engine, model, {}));
  const auto geometry =
      models::KvGeometry::For(model, engine.block_size, *resolved.options.kv_dtype);
  const std::vector<int64_t>& buckets = resolved.options.decode_buckets;
  const uint64_t pool_blocks = engine.kv_cache_bytes / geometry.BlockBytes();
  if (engine.kv_cache_bytes != 0 && pool_blocks < 2) return absl::OkStatus();  // the engine says it
  REPRISE_RETURN_IF_ERROR(
      CheckPoints(points, resolved.limits,
                  static_cast<uint32_t>(*std::max_element(buckets.begin(), buckets.end())),
                  engine.block_size, pool_blocks == 0 ? 0 : pool_blocks - 1));
  if (engine.kv_cache_bytes == 0) {
    // And the scratch block.
    engine.kv_cache_bytes = (BlocksNeeded(points, engine.block_size) + 1) * geometry.BlockBytes();
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
