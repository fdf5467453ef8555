// SPDX-License-Identifier: Apache-2.0
#include "service/kv/kv_wire.h"

#include <zlib.h>

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"

namespace reprise::service {
namespace {

absl::Status Differs(const char* what, const std::string& got, const std::string& own) {
  return absl::FailedPreconditionError(absl::StrCat("layout.", what, ": got ", got, ", allowed ",
                                                    own, ", that of this server (Describe)"));
}

absl::Status CheckNumber(const char* what, uint32_t got, uint32_t own) {
  if (got == own) return absl::OkStatus();
  return Differs(what, absl::StrCat(got), absl::StrCat(own));
}

// Text of a client's, fit for a message.
std::string Quoted(const std::string& text) {
  constexpr size_t kMost = 32;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMost)),
                      text.size() > kMost ? "...\"" : "\"");
}

}  // namespace

void KvLayoutToWire(const engine::KvShape& shape, std::string_view model, v1::KvLayout* wire) {
  wire->set_version(kKvLayoutVersion);
  wire->set_num_layers(shape.num_layers);
  wire->set_num_kv_heads(shape.num_kv_heads);
  wire->set_head_dim(shape.head_dim);
  wire->set_block_size(shape.block_size);
  wire->set_dtype(std::string(runtime::NameOf(shape.dtype)));
  wire->set_model(std::string(model));
}

absl::Status CheckKvLayout(const v1::KvLayout& got, const v1::KvLayout& own) {
  REPRISE_RETURN_IF_ERROR(CheckNumber("version", got.version(), own.version()));
  REPRISE_RETURN_IF_ERROR(CheckNumber("num_layers", got.num_layers(), own.num_layers()));
  REPRISE_RETURN_IF_ERROR(CheckNumber("num_kv_heads", got.num_kv_heads(), own.num_kv_heads()));
  REPRISE_RETURN_IF_ERROR(CheckNumber("head_dim", got.head_dim(), own.head_dim()));
  REPRISE_RETURN_IF_ERROR(CheckNumber("block_size", got.block_size(), own.block_size()));
  if (got.dtype() != own.dtype()) return Differs("dtype", Quoted(got.dtype()), Quoted(own.dtype()));
  if (got.model() != own.model()) {
    return Differs("model", absl::StrCat("another model (", got.model().size(), " bytes)"),
                   absl::BytesToHexString(own.model()));
  }
  return absl::OkStatus();
}

uint32_t Crc32Of(const v1::KvPart& part) {
  unsigned char head[12];
  const uint32_t numbers[] = {part.first_layer(), part.num_layers(), part.num_tokens()};
  for (size_t i = 0; i < sizeof(head); ++i)
    head[i] = static_cast<unsigned char>(numbers[i / 4] >> (8 * (i % 4)));
  const uLong of_head = ::crc32(::crc32(0, nullptr, 0), head, sizeof(head));
  return static_cast<uint32_t>(
      ::crc32_z(of_head, reinterpret_cast<const unsigned char*>(part.contents().data()),
                part.contents().size()));
}

std::vector<engine::KvPart> RangesFromWire(const v1::ReadBlocksRequest& wire, uint32_t num_layers) {
  std::vector<engine::KvPart> parts;
  parts.reserve(static_cast<size_t>(wire.ranges_size()));
  for (const v1::KvRange& range : wire.ranges()) {
    const uint32_t rest = num_layers - std::min(num_layers, range.first_layer());
    parts.push_back({.block = range.block(),
                     .first_layer = range.first_layer(),
                     .num_layers = range.num_layers() == 0 ? rest : range.num_layers()});
  }
  return parts;
}

void PartsToWire(const engine::KvShape& shape, std::span<const engine::KvPart> parts,
                 std::span<const std::byte> contents,
                 google::protobuf::RepeatedPtrField<v1::KvPart>* wire) {
  for (const engine::KvPart& part : parts) {
    v1::KvPart* out = wire->Add();
    out->set_block(part.block);
    out->set_first_layer(part.first_layer);
    out->set_num_layers(part.num_layers);
    out->set_num_tokens(part.num_tokens);
    const std::span<const std::byte> own = contents.first(shape.BytesOf(part));
    out->set_contents(own.data(), own.size());
    contents = contents.subspan(own.size());
    out->set_crc32(Crc32Of(*out));
  }
}

absl::StatusOr<KvParts> PartsFromWire(const engine::KvShape& shape,
                                      const v1::WriteBlocksRequest& wire) {
  KvParts parts;
  parts.parts.reserve(static_cast<size_t>(wire.parts_size()));
  size_t bytes = 0;
  for (const v1::KvPart& part : wire.parts()) bytes += part.contents().size();
  parts.contents.reserve(bytes);
  for (const v1::KvPart& part : wire.parts()) {
    if (const uint32_t crc = Crc32Of(part); crc != part.crc32()) {
      return absl::DataLossError(absl::StrCat("part of block ", part.block(), ": crc32: got ",
                                              part.crc32(), ", allowed ", crc,
                                              ", that of what has come"));
    }
    const engine::KvPart& in =
        parts.parts.emplace_back(engine::KvPart{.block = part.block(),
                                                .first_layer = part.first_layer(),
                                                .num_layers = part.num_layers(),
                                                .num_tokens = part.num_tokens()});
    // Numbers beyond the model's are the engine's to refuse; here they must not overflow.
    const bool sane = in.num_layers <= shape.num_layers && in.num_tokens <= shape.block_size;
    if (sane && part.contents().size() != shape.BytesOf(in)) {
      return absl::InvalidArgumentError(
          absl::StrCat("part of block ", part.block(), ": contents: got ", part.contents().size(),
                       " bytes, allowed ", shape.BytesOf(in), ", which layers and tokens make"));
    }
    const auto* data = reinterpret_cast<const std::byte*>(part.contents().data());
    parts.contents.insert(parts.contents.end(), data, data + part.contents().size());
  }
  return parts;
}

}  // namespace reprise::service
