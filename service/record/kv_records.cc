// SPDX-License-Identifier: Apache-2.0
#include "service/record/kv_records.h"

#include <openssl/sha.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "service/kv/kv_wire.h"

namespace reprise::service {
namespace {

using Ids = google::protobuf::RepeatedField<uint32_t>;

constexpr size_t kDigestDigits = 2 * size_t{SHA256_DIGEST_LENGTH};

// Numbers from `first` on, as many as there are of them.
struct Allowed {
  const char* what;  // "block"
  uint32_t first;
  uint64_t end;
  const char* of;  // whose they are
};

Allowed BlocksOf(const v1::DescribeResponse& server) {
  return {.what = "block",
          .first = 1,
          .end = server.pool().num_blocks(),
          .of = "those of the recorded pool"};
}

Allowed PlacesOf(const v1::DescribeResponse& server) {
  return {.what = "swapped block",
          .first = 0,
          .end = server.pool().swap_blocks(),
          .of = "those of the recorded swap space"};
}

Allowed StatesOf(const v1::DescribeResponse& server) {
  return {.what = "swapped state",
          .first = 0,
          .end = server.pool().swap_states(),
          .of = "those of the recorded swap space"};
}

absl::Status CheckId(const char* call, uint32_t id, const Allowed& allowed) {
  if (id >= allowed.first && id < allowed.end) return absl::OkStatus();
  const std::string range =
      allowed.end <= allowed.first ? "none" : absl::StrCat(allowed.first, " to ", allowed.end - 1);
  return absl::DataLossError(
      absl::StrCat(call, ": got ", allowed.what, " ", id, ", allowed: ", range, ", ", allowed.of));
}

absl::Status CheckIds(const char* call, const Ids& ids, const Allowed& allowed) {
  if (ids.empty()) {
    return absl::DataLossError(
        absl::StrCat(call, ": got no ", allowed.what, ", allowed: one or more"));
  }
  for (const uint32_t id : ids) REPRISE_RETURN_IF_ERROR(CheckId(call, id, allowed));
  return absl::OkStatus();
}

absl::Status CheckPairs(const char* call, const Ids& blocks, const Ids& places,
                        const v1::DescribeResponse& server) {
  if (blocks.size() != places.size()) {
    return absl::DataLossError(absl::StrCat(call, ": got ", blocks.size(), " blocks and ",
                                            places.size(),
                                            " swapped blocks, allowed: one for each"));
  }
  REPRISE_RETURN_IF_ERROR(CheckIds(call, blocks, BlocksOf(server)));
  return CheckIds(call, places, PlacesOf(server));
}

absl::Status CheckFreeSwapped(const v1::FreeSwappedRequest& call,
                              const v1::DescribeResponse& server) {
  for (const uint32_t place : call.swapped())
    REPRISE_RETURN_IF_ERROR(CheckId("free_swapped", place, PlacesOf(server)));
  for (const uint32_t state : call.swapped_states())
    REPRISE_RETURN_IF_ERROR(CheckId("free_swapped", state, StatesOf(server)));
  return absl::OkStatus();
}

absl::Status CheckName(const char* call, const std::string& name) {
  if (name.size() == kDigestDigits) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(call, ": got a name of ", name.size(),
                                          " bytes, allowed: a digest of ", kDigestDigits));
}

// ---- contents ----

std::optional<size_t> ElementBytes(std::string_view dtype) {
  using runtime::DType;
  for (const DType type : {DType::kF32, DType::kBf16, DType::kF16, DType::kE4m3, DType::kE5m2}) {
    if (runtime::NameOf(type) == dtype) return runtime::SizeOf(type);
  }
  return std::nullopt;
}

// Whether `bytes` is the product, whatever numbers a damaged file has.
bool IsProduct(uint64_t bytes, const std::array<uint64_t, 6>& factors) {
  for (const uint64_t factor : factors) {
    if (factor == 0 || bytes % factor != 0) return false;
    bytes /= factor;
  }
  return bytes == 1;
}

absl::Status CheckPart(const v1::KvLayout& layout, size_t element_bytes, const v1::KvPart& part) {
  const auto refuse = [&part](const std::string& what) {
    return absl::DataLossError(absl::StrCat("write: block ", part.block(), ": ", what));
  };
  if (part.first_layer() >= layout.num_layers() || part.num_layers() < 1 ||
      part.num_layers() > layout.num_layers() - part.first_layer()) {
    return refuse(absl::StrCat("got ", part.num_layers(), " layers from layer ", part.first_layer(),
                               " on, allowed: at least 1 of ", layout.num_layers()));
  }
  if (part.num_tokens() < 1 || part.num_tokens() > layout.block_size()) {
    return refuse(
        absl::StrCat("got ", part.num_tokens(), " tokens, allowed: 1 to ", layout.block_size()));
  }
  if (!IsProduct(part.contents().size(), {part.num_layers(), 2, layout.num_kv_heads(),
                                          part.num_tokens(), layout.head_dim(), element_bytes})) {
    return refuse(absl::StrCat("got ", part.contents().size(),
                               " bytes of contents, allowed: as many as ", part.num_layers(),
                               " layers of ", part.num_tokens(), " tokens make"));
  }
  if (const uint32_t crc = Crc32Of(part); crc != part.crc32()) {
    return refuse(
        absl::StrCat("crc32: got ", part.crc32(), ", allowed: ", crc, ", that of its contents"));
  }
  return absl::OkStatus();
}

absl::Status CheckWrite(const v1::WriteBlocksRequest& write, const v1::DescribeResponse& server) {
  const v1::KvLayout& layout = write.layout();
  const std::optional<size_t> element_bytes = ElementBytes(layout.dtype());
  if (!element_bytes) {
    return absl::DataLossError(absl::StrCat("write: layout.dtype: got \"",
                                            absl::CHexEscape(layout.dtype()),
                                            "\", allowed: f32, bf16, f16, fp8_e4m3, fp8_e5m2"));
  }
  if (layout.block_size() != server.pool().block_size()) {
    return absl::DataLossError(absl::StrCat("write: layout.block_size: got ", layout.block_size(),
                                            ", allowed: ", server.pool().block_size(),
                                            ", that of the recorded pool"));
  }
  if (write.parts().empty())
    return absl::DataLossError("write: got no part of a block, allowed: one or more");
  for (const v1::KvPart& part : write.parts()) {
    REPRISE_RETURN_IF_ERROR(CheckId("write", part.block(), BlocksOf(server)));
    REPRISE_RETURN_IF_ERROR(CheckPart(layout, *element_bytes, part));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SharedNameDigest(std::string_view name) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  ::SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(),
           reinterpret_cast<unsigned char*>(digest.data()));
  return absl::BytesToHexString(digest);
}

int NumKvCalls(const v1::SessionRecord& record) {
  int count = 0;
  for (const bool is_one : {record.has_write(), record.has_swap_out(), record.has_swap_in(),
                            record.has_swap_out_state(), record.has_free_swapped(),
                            record.has_share(), record.has_adopted(), record.has_release()})
    count += is_one ? 1 : 0;
  return count;
}

absl::Status CheckKvCall(const v1::RecordHeader& header, const v1::SessionRecord& record) {
  const v1::DescribeResponse& server = header.server();
  if (record.has_write()) return CheckWrite(record.write(), server);
  if (record.has_swap_out()) {
    return CheckPairs("swap_out", record.swap_out().blocks(), record.swapped_out().swapped(),
                      server);
  }
  if (record.has_swap_in()) {
    return CheckPairs("swap_in", record.swapped_in().blocks(), record.swap_in().swapped(), server);
  }
  if (record.has_swap_out_state()) {
    if (!record.has_swapped_out_state())
      return absl::DataLossError("swap_out_state: got no answer, allowed one");
    return CheckId("swap_out_state", record.swapped_out_state().swapped_state(), StatesOf(server));
  }
  if (record.has_free_swapped()) return CheckFreeSwapped(record.free_swapped(), server);
  if (record.has_adopted()) return CheckIds("adopted", record.adopted().blocks(), BlocksOf(server));
  if (record.has_release()) return CheckName("release", record.release().name());
  REPRISE_RETURN_IF_ERROR(CheckName("share", record.share().name()));
  return CheckIds("share", record.share().blocks(), BlocksOf(server));
}

}  // namespace reprise::service
