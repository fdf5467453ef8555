// SPDX-License-Identifier: Apache-2.0
// SafetensorsFile: one .safetensors file, memory-mapped, its header checked in full before any
// tensor is handed out. Format: u64 little-endian header length, JSON header {name: {dtype, shape,
// data_offsets}}, then the tensors' bytes. Source: the safetensors format description
// (huggingface/safetensors).
#ifndef REPRISE_MODELS_WEIGHTS_SAFETENSORS_H_
#define REPRISE_MODELS_WEIGHTS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "runtime/dtype.h"

namespace reprise::models {

// Read-only view into the mapping. `data.size() == product(shape) * element_bytes()`, checked at
// Open. Row-major.
struct TensorView {
  runtime::DType dtype = runtime::DType::kF32;  // of floats
  // 4 or 8: elements are signed integers instead; 1: bytes.
  int integer_bytes = 0;
  std::vector<int64_t> shape = {};
  std::span<const std::byte> data = {};

  bool is_float() const { return integer_bytes == 0; }
  size_t element_bytes() const {
    return is_float() ? runtime::SizeOf(dtype) : static_cast<size_t>(integer_bytes);
  }
};
// "f32", "i32", "u8" ..
std::string ElementName(const TensorView& view);
// "[2, 3]".
std::string ShowShape(const std::vector<int64_t>& shape);

class SafetensorsFile {
 public:
  // Errors: NotFound / PermissionDenied (path); InvalidArgument with what, got, allowed for: a file
  // shorter than its header says, a header over 100 MiB or not JSON, a tensor of unknown dtype,
  // negative or overflowing shape, offsets that are reversed, overlap, leave holes, exceed the
  // file, or disagree with shape * dtype, and trailing bytes.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const absl::btree_map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }

 private:
  SafetensorsFile() = default;
  std::string path_;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  absl::btree_map<std::string, TensorView> tensors_;
};

// Gives back the memory that holds these bytes of a file; whoever reads them again has them from
// the file. Keeps the pages at both ends, which others may share.
void ReleasePages(std::span<const std::byte> data);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_SAFETENSORS_H_
