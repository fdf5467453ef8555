// SPDX-License-Identifier: Apache-2.0
// Structs of blocks that go from one engine to another through memory that their processes share
// (docs/kv.md). An engine copies blocks into its export space; another maps that space and copies
// them into its own pool.
#ifndef REPRISE_ENGINE_KV_EXPORT_H_
#define REPRISE_ENGINE_KV_EXPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace reprise::engine {

// A copy of a block in export space.
struct ExportedBlock {
  uint32_t place = 0;
  uint32_t num_tokens = 0;  // written in it
};

// An engine's export space.
struct ExportSpace {
  uint32_t num_places = 0;  // 0: it has none
  const std::byte* data = nullptr;
  std::string handle;  // by which other processes map it
  // How a block lies there. Only engines of the same may take each other's.
  std::string arrangement;
};

// Where blocks are imported from.
struct ImportSource {
  const std::byte* data = nullptr;  // of an export space, mapped
  std::span<const ExportedBlock> blocks;
  // Asked once they have been copied: whether they were still there.
  std::function<absl::Status()> check;
};

// Told of copies that are complete, while nobody can take their places away, and of places that are
// free again, before anybody else is given them. Neither may call the engine.
using PublishExportsFn = std::function<void(std::span<const ExportedBlock> blocks)>;
using ExportsFreedFn = std::function<void(std::span<const uint32_t> places)>;

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_KV_EXPORT_H_
