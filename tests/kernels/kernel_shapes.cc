// SPDX-License-Identifier: Apache-2.0
// reprise_kernel_shapes: prints, as JSON, what the catalogue says of a device of each kind of
// matrix unit: the kernels that must exist with the dynamic shared memory of a typical launch,
// those that must be empty because they do not fit, and the budget. A developer's program for
// tools/kernel_resources.py: it asks the very tables and functions that launches ask, so that no
// number is written twice. Threads are not here: compiled code states them itself.
//
//   reprise_kernel_shapes > shapes.json
//
// The typical launch is that of Llama-3.1-8B: 32 heads of 128 on 8 KV heads.
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/attention/attention_geometry.h"
#include "kernels/catalog.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/rope_append/rope_append_args.h"
#include "kernels/sample/sample_geometry.h"
#include "kernels/step/fetch_args.h"

namespace reprise::kernels {
namespace {

constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128;

// As in the ops' launches.
size_t SharedBytes(const DeviceTraits& traits, const KernelInstance& instance) {
  const KernelFamily* const family = instance.family;
  if (family == &kFetch) return kFetchAheadBytes;
  if (family == &kRopeAppendNormed)
    return size_t{kHeads + kKvHeads} * kHeadNormLanes * sizeof(float);
  if (family == &kSampleFinal) return sizeof(ReportScratch);
  if (family == &kLinearPortable) return kPortableSharedBytes;
  if (family == &kLinearMatrix)
    return static_cast<size_t>(
        MatrixSharedBytes(traits, instance.tile != 0 ? instance.tile : MatrixMaxSplitRows(traits)));
  if (family == &kAttentionPortable) {
    const int rows =
        PortableAttentionPassRows(kPrefillRows, kHeadDim, static_cast<size_t>(traits.shared_bytes));
    return static_cast<size_t>(rows) * PortableAttentionRowBytes(kHeadDim);
  }
  if (family == &kAttentionDecodeMatrix) return MatrixDecodeLayout(traits, instance.tile).bytes;
  if (family == &kAttentionPrefillMatrix) return MatrixPrefillLayout(traits, instance.tile).bytes;
  return 0;
}

void PrintUnit(const char* unit_name, runtime::MatrixUnit unit, bool last) {
  const DeviceTraits traits = TraitsOf(unit);
  std::string present, empty;
  for (const std::span<const KernelInstance> table : kInstanceTables) {
    for (const KernelInstance& instance : table) {
      if (instance.style == KernelStyle::kHost) continue;
      const std::string name = "\"" + std::string(instance.symbol) + "\"";
      if (instance.Fits(traits)) {
        if (!present.empty()) present += ",\n";
        present += "        " + name + ": " + std::to_string(SharedBytes(traits, instance));
      } else {
        if (!empty.empty()) empty += ", ";
        empty += name;
      }
    }
  }
  std::printf("    \"%s\": {\n      \"budget\": %d,\n", unit_name, InstanceBudget(unit));
  std::printf("      \"empty\": [%s],\n", empty.c_str());
  std::printf("      \"dynamic_shared_bytes\": {\n%s\n      }\n    }%s\n", present.c_str(),
              last ? "" : ",");
}

}  // namespace
}  // namespace reprise::kernels

int main() {
  using reprise::runtime::MatrixUnit;
  std::printf("{\n  \"launch\": \"Llama-3.1-8B: %d heads of %d on %d KV heads\",\n",
              reprise::kernels::kHeads, reprise::kernels::kHeadDim, reprise::kernels::kKvHeads);
  std::printf("  \"units\": {\n");
  reprise::kernels::PrintUnit("mma", MatrixUnit::kMma, false);
  reprise::kernels::PrintUnit("mfma", MatrixUnit::kMfma, false);
  reprise::kernels::PrintUnit("wmma", MatrixUnit::kWmma, true);
  std::printf("  }\n}\n");
  return 0;
}
