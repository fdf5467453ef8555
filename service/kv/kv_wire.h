// SPDX-License-Identifier: Apache-2.0
// Contents of KV blocks between wire and structs: reprise.v1.KvLayout, KvRange and KvPart.
// Threads: free functions without state.
#ifndef REPRISE_SERVICE_KV_KV_WIRE_H_
#define REPRISE_SERVICE_KV_KV_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kv_part.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::service {

// KvLayout.version.
inline constexpr uint32_t kKvLayoutVersion = 1;

// `model`: its fingerprint; "": not known.
void KvLayoutToWire(const engine::KvShape& shape, std::string_view model, v1::KvLayout* wire);
// Errors: FailedPrecondition names the first field that differs: what, got, allowed.
absl::Status CheckKvLayout(const v1::KvLayout& got, const v1::KvLayout& own);

// KvPart.crc32 of a part.
uint32_t Crc32Of(const v1::KvPart& part);

// What is wanted, of a model with so many layers.
std::vector<engine::KvPart> RangesFromWire(const v1::ReadBlocksRequest& wire, uint32_t num_layers);
// Appends them. `contents`: those of all parts, one behind the other.
void PartsToWire(const engine::KvShape& shape, std::span<const engine::KvPart> parts,
                 std::span<const std::byte> contents,
                 google::protobuf::RepeatedPtrField<v1::KvPart>* wire);

struct KvParts {
  std::vector<engine::KvPart> parts;
  std::vector<std::byte> contents;  // of all of them, one behind the other
};
// Errors: DataLoss where a checksum is wrong, InvalidArgument where contents have another size than
// layers and tokens make.
absl::StatusOr<KvParts> PartsFromWire(const engine::KvShape& shape,
                                      const v1::WriteBlocksRequest& wire);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_KV_WIRE_H_
