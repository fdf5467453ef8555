// SPDX-License-Identifier: Apache-2.0
// reprise_kernel_shapes: prints, as JSON, which kernels must exist on a device of each kind of
// matrix unit, and the dynamic shared memory of a typical launch of each. A developer's program for
// tools/kernel_resources.py: it asks the very functions that launches ask, so that no number is
// written twice. Threads are not here: compiled code states them itself.
//
//   reprise_kernel_shapes > shapes.json
//
// The typical launch is that of Llama-3.1-8B: 32 heads of 128 on 8 KV heads.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention/attention_args.h"
#include "kernels/attention/matrix_geometry.h"
#include "kernels/attention/portable_geometry.h"
#include "kernels/kernel_list.h"
#include "kernels/linear/linear_portable_body.h"
#include "kernels/linear/matrix_geometry.h"
#include "kernels/rope_append/rope_append_args.h"
#include "kernels/sample/report.h"
#include "kernels/step/body.h"

namespace reprise::kernels {
namespace {

constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128;

using Names = std::vector<std::string_view>;
#define REPRISE_NAME(name) #name,
const Names& BlockKernels() {
  static const Names names = {REPRISE_FOR_EACH_BLOCK_KERNEL(REPRISE_NAME)};
  return names;
}
const Names& MatrixKernels() {
  static const Names names = {REPRISE_FOR_EACH_MATRIX_LINEAR(REPRISE_NAME)
                                  REPRISE_FOR_EACH_MATRIX_ATTENTION(REPRISE_NAME)};
  return names;
}
const Names& LargeMatrixKernels() {
  static const Names names = {REPRISE_FOR_EACH_LARGE_MATRIX_LINEAR(REPRISE_NAME)
                                  REPRISE_FOR_EACH_LARGE_MATRIX_ATTENTION(REPRISE_NAME)};
  return names;
}
#undef REPRISE_NAME

bool StartsWith(std::string_view name, std::string_view prefix) {
  return name.substr(0, prefix.size()) == prefix;
}

// What follows the last underscore, as a number; empty for "whole".
std::optional<int> SizeOf(std::string_view name) {
  const std::string_view size = name.substr(name.rfind('_') + 1);
  if (size == "whole") return std::nullopt;
  return std::stoi(std::string(size));
}

// As in the ops' launches.
size_t BlockSharedBytes(const DeviceTraits& traits, std::string_view name) {
  if (StartsWith(name, "reprise_fetch")) return on_host::kFetchAheadBytes;
  if (StartsWith(name, "reprise_rope_append_normed"))
    return size_t{kHeads + kKvHeads} * kHeadNormLanes * sizeof(float);
  if (StartsWith(name, "reprise_sample_final")) return sizeof(on_host::ReportScratch);
  if (StartsWith(name, "reprise_linear_portable")) return on_host::kPortableSharedBytes;
  if (StartsWith(name, "reprise_attention_portable")) {
    const int rows =
        PortableAttentionPassRows(kPrefillRows, kHeadDim, static_cast<size_t>(traits.shared_bytes));
    return static_cast<size_t>(rows) * PortableAttentionRowBytes(kHeadDim);
  }
  return 0;
}
size_t MatrixSharedBytes(const DeviceTraits& traits, std::string_view name) {
  const std::optional<int> size = SizeOf(name);
  if (StartsWith(name, "reprise_linear_matrix"))
    return static_cast<size_t>(
        MatrixSharedBytes(traits, size.has_value() ? *size : MatrixMaxSplitRows(traits)));
  if (StartsWith(name, "reprise_attention_decode_matrix"))
    return MatrixDecodeLayout(traits, *size).bytes;
  return MatrixPrefillLayout(traits, *size).bytes;
}

void Print(const char* unit_name, runtime::MatrixUnit unit, bool last) {
  const DeviceTraits traits = TraitsOf(unit);
  std::printf("    \"%s\": {\n", unit_name);
  const char* separator = "";
  const auto print = [&](std::string_view name, size_t bytes) {
    std::printf("%s      \"%.*s\": %zu", separator, static_cast<int>(name.size()), name.data(),
                bytes);
    separator = ",\n";
  };
  for (std::string_view name : BlockKernels()) print(name, BlockSharedBytes(traits, name));
  for (std::string_view name : MatrixKernels()) print(name, MatrixSharedBytes(traits, name));
  if (unit == runtime::MatrixUnit::kMma)
    for (std::string_view name : LargeMatrixKernels()) print(name, MatrixSharedBytes(traits, name));
  std::printf("\n    }%s\n", last ? "" : ",");
}

}  // namespace
}  // namespace reprise::kernels

int main() {
  using reprise::runtime::MatrixUnit;
  std::printf("{\n  \"launch\": \"Llama-3.1-8B: %d heads of %d on %d KV heads\",\n",
              reprise::kernels::kHeads, reprise::kernels::kHeadDim, reprise::kernels::kKvHeads);
  std::printf("  \"dynamic_shared_bytes\": {\n");
  reprise::kernels::Print("mma", MatrixUnit::kMma, false);
  reprise::kernels::Print("mfma", MatrixUnit::kMfma, false);
  reprise::kernels::Print("wmma", MatrixUnit::kWmma, true);
  std::printf("  }\n}\n");
  return 0;
}
