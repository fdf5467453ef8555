// SPDX-License-Identifier: Apache-2.0
// reprise_kernel_shapes: prints, as JSON, what the catalogue says of a device of each kind of
// matrix unit: the kernels that must exist with the dynamic shared memory of a typical launch,
// those that must be empty because they do not fit, and the budget. A developer's program for
// tools/kernel_resources.py: it asks the very tables and functions that launches ask, so that no
// number is written twice. Threads are not here: compiled code states them itself.
//
//   reprise_kernel_shapes > shapes.json
//
// What a typical launch is: kernel_shapes.h.
#include "tests/kernels/kernel_shapes.h"

#include <cstdio>
#include <span>
#include <string>

#include "kernels/catalog.h"
#include "runtime/check.h"

namespace reprise::testing {
namespace {

using kernels::DeviceTraits;
using kernels::KernelInstance;

size_t SharedBytes(const DeviceTraits& traits, const KernelInstance& instance) {
  for (const FamilyShape& shape : kFamilyShapes)
    if (shape.family == instance.family) return shape.shared_bytes(traits, instance);
  REPRISE_CHECK(false);  // a family that is missing there
  return 0;
}

void PrintUnit(const char* unit_name, const DeviceTraits& traits, bool last) {
  std::string present, empty;
  for (const std::span<const KernelInstance> table : kernels::kInstanceTables) {
    for (const KernelInstance& instance : table) {
      if (instance.style == kernels::KernelStyle::kHost) continue;
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
  std::printf("    \"%s\": {\n      \"budget\": %d,\n", unit_name,
              kernels::InstanceBudget(traits.matrix_unit));
  std::printf("      \"empty\": [%s],\n", empty.c_str());
  std::printf("      \"dynamic_shared_bytes\": {\n%s\n      }\n    }%s\n", present.c_str(),
              last ? "" : ",");
}

}  // namespace
}  // namespace reprise::testing

int main() {
  using reprise::kernels::TraitsOf;
  using reprise::kernels::WithoutBulkCopy;
  using reprise::kernels::WithoutGroupProducts;
  using reprise::runtime::MatrixUnit;
  using reprise::testing::PrintUnit;
  std::printf("{\n  \"launch\": \"Llama-3.1-8B: %d heads of %d on %d KV heads\",\n",
              reprise::testing::kTypicalHeads, reprise::testing::kTypicalHeadDim,
              reprise::testing::kTypicalKvHeads);
  std::printf("  \"units\": {\n");
  PrintUnit("mma", TraitsOf(MatrixUnit::kMma), false);
  PrintUnit("mma_without_group_products", WithoutGroupProducts(TraitsOf(MatrixUnit::kMma)), false);
  PrintUnit("mma_without_bulk_copy", WithoutBulkCopy(TraitsOf(MatrixUnit::kMma)), false);
  PrintUnit("mfma", TraitsOf(MatrixUnit::kMfma), false);
  PrintUnit("wmma", TraitsOf(MatrixUnit::kWmma), true);
  std::printf("  }\n}\n");
  return 0;
}
