// SPDX-License-Identifier: Apache-2.0
// Safetensors; see safetensors.h. Every number of the header is checked against the file before the
// first view exists, so that a reader of a view needs no further check.
#include "models/weights/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;  // the format's own limit

// Of the elements alone.
std::optional<TensorView> UsableElements(std::string_view name) {
  if (name == "F32") return TensorView{.dtype = runtime::DType::kF32};
  if (name == "BF16") return TensorView{.dtype = runtime::DType::kBf16};
  if (name == "F16") return TensorView{.dtype = runtime::DType::kF16};
  if (name == "F8_E4M3") return TensorView{.dtype = runtime::DType::kE4m3};
  if (name == "U8") return TensorView{.integer_bytes = 1};
  if (name == "I32") return TensorView{.integer_bytes = 4};
  if (name == "I64") return TensorView{.integer_bytes = 8};
  return std::nullopt;
}

struct ParsedTensor {
  std::string name;
  TensorView view;  // its data is set once the offsets are known to be good
  uint64_t begin = 0, end = 0;
};

absl::Status Refuse(const std::string& tensor, const char* what, const Json& got,
                    const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", ShowJson(tensor), ": ", what, ": got ",
                                                 ShowJson(got), ", allowed ", allowed));
}

// Number of bytes, or nullopt when int64 does not hold it.
std::optional<uint64_t> BytesOf(const TensorView& view) {
  int64_t bytes = static_cast<int64_t>(view.element_bytes());
  for (const int64_t size : view.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

bool IsCount(const Json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
}

absl::Status ParseShape(const Json& shape, ParsedTensor& tensor) {
  if (!shape.is_array()) return Refuse(tensor.name, "shape", shape, "a list of sizes");
  for (const Json& size : shape) {
    if (!IsCount(size)) return Refuse(tensor.name, "shape", shape, "sizes from 0 to 2^63 - 1");
    tensor.view.shape.push_back(size.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::Status ParseOffsets(const Json& offsets, ParsedTensor& tensor) {
  if (!offsets.is_array() || offsets.size() != 2 || !IsCount(offsets[0]) || !IsCount(offsets[1])) {
    return Refuse(tensor.name, "data_offsets", offsets, "a list of two byte offsets");
  }
  tensor.begin = offsets[0].get<uint64_t>();
  tensor.end = offsets[1].get<uint64_t>();
  if (tensor.begin > tensor.end) {
    return Refuse(tensor.name, "data_offsets", offsets, "begin <= end");
  }
  return absl::OkStatus();
}

absl::StatusOr<ParsedTensor> ParseTensor(const std::string& name, const Json& entry) {
  ParsedTensor tensor;
  tensor.name = name;
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return Refuse(name, "entry", entry, "an object of dtype, shape and data_offsets");
  }
  const Json& dtype = entry["dtype"];
  const std::optional<TensorView> usable =
      dtype.is_string() ? UsableElements(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!usable.has_value())
    return Refuse(name, "dtype", dtype, "F32, BF16, F16, F8_E4M3, U8, I32 or I64");
  tensor.view = *usable;
  REPRISE_RETURN_IF_ERROR(ParseShape(entry["shape"], tensor));
  REPRISE_RETURN_IF_ERROR(ParseOffsets(entry["data_offsets"], tensor));
  const std::optional<uint64_t> bytes = BytesOf(tensor.view);
  if (!bytes.has_value()) {
    return Refuse(name, "shape", entry["shape"], "a product of sizes that int64 holds");
  }
  if (*bytes != tensor.end - tensor.begin) {
    return Refuse(name, "data_offsets", entry["data_offsets"],
                  absl::StrCat(*bytes, " bytes, which dtype and shape take"));
  }
  return tensor;
}

absl::Status CheckMetadata(const Json& metadata) {
  bool strings = metadata.is_object();
  if (strings) {
    for (const Json& value : metadata) strings = strings && value.is_string();
  }
  if (strings) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("__metadata__: got ", ShowJson(metadata), ", allowed an object of strings"));
}

// Sorted by offset; together they cover [0, data_bytes) exactly.
absl::Status CheckCover(const std::vector<ParsedTensor>& tensors, uint64_t data_bytes) {
  uint64_t covered = 0;
  for (const ParsedTensor& tensor : tensors) {
    if (tensor.end > data_bytes) {
      return Refuse(tensor.name, "data_offsets", {tensor.begin, tensor.end},
                    absl::StrCat("at most the file's ", data_bytes, " data bytes"));
    }
    if (tensor.begin != covered) {
      return Refuse(tensor.name, "data_offsets", {tensor.begin, tensor.end},
                    absl::StrCat("a begin of ", covered, ", where the tensor before it ends (no ",
                                 tensor.begin < covered ? "overlaps" : "holes", ")"));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", data_bytes - covered, " bytes after the last tensor, allowed none"));
  }
  return absl::OkStatus();
}

// `file`: the whole file. The tensors' views point into it.
absl::StatusOr<std::vector<ParsedTensor>> ParseFile(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", file.size(), " bytes, allowed at least ", kLengthBytes));
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  const uint64_t max_bytes = std::min<uint64_t>(kMaxHeaderBytes, file.size() - kLengthBytes);
  if (header_bytes > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length: got ", header_bytes, " bytes, allowed at most ", max_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              header_bytes);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header_bytes);
  REPRISE_ASSIGN_OR_RETURN(const Json header, ParseJsonObject(text, "header"));
  std::vector<ParsedTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      REPRISE_RETURN_IF_ERROR(CheckMetadata(entry));
      continue;
    }
    REPRISE_ASSIGN_OR_RETURN(ParsedTensor tensor, ParseTensor(name, entry));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const ParsedTensor& a, const ParsedTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  REPRISE_RETURN_IF_ERROR(CheckCover(tensors, data.size()));
  for (ParsedTensor& tensor : tensors) {
    tensor.view.data = data.subspan(tensor.begin, tensor.end - tensor.begin);
  }
  return tensors;
}

}  // namespace

std::string ElementName(const TensorView& view) {
  return view.is_float()           ? std::string(runtime::NameOf(view.dtype))
         : view.integer_bytes == 1 ? std::string("u8")
                                   : absl::StrCat("i", 8 * view.integer_bytes);
}

std::string ShowShape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const InputFile input, InputFile::Open(path));
  auto file = std::unique_ptr<SafetensorsFile>(new SafetensorsFile());
  file->path_ = path;
  if (input.bytes() > 0) {  // an empty mapping is an error of its own
    void* mapping = mmap(nullptr, input.bytes(), PROT_READ, MAP_PRIVATE, input.descriptor(), 0);
    if (mapping == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
    file->mapping_ = mapping;
    file->mapping_bytes_ = input.bytes();
  }
  auto tensors = ParseFile({static_cast<const std::byte*>(file->mapping_), file->mapping_bytes_});
  if (!tensors.ok()) {
    return absl::Status(tensors.status().code(),
                        absl::StrCat(path, ": ", tensors.status().message()));
  }
  for (ParsedTensor& tensor : *tensors) {
    file->tensors_.emplace(std::move(tensor.name), std::move(tensor.view));
  }
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

void ReleasePages(std::span<const std::byte> data) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data.data());
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + data.size()) / page * page;
  // Where it fails the pages stay, as without it.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace reprise::models
