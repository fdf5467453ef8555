// SPDX-License-Identifier: Apache-2.0
// What a profile sets arithmetic beside: how many floating-point operations a second a large linear
// layer of our own kernels does on the spot, far from what memory bounds. A device's data sheet
// promises more.
#ifndef REPRISE_TOOLS_PROFILE_PRODUCTS_H_
#define REPRISE_TOOLS_PROFILE_PRODUCTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "tools/samples.h"

namespace reprise::tools {

struct ProductRate {
  uint32_t tokens = 0;   // of the layer
  int64_t features = 0;  // of its inputs, and of its outputs
  runtime::DType dtype = runtime::DType::kBf16;
  Samples flops_per_s;  // by pass; a multiplication and an addition are two
  double best() const { return flops_per_s.Percentile(100); }
};

// See engine/product_rate.h.
absl::StatusOr<ProductRate> MeasureProducts(runtime::Device& device, runtime::DType dtype,
                                            uint32_t passes);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_PRODUCTS_H_
