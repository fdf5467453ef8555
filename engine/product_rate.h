// SPDX-License-Identifier: Apache-2.0
// What figures of arithmetic are set beside, measured on the spot: how many floating-point
// operations a second a large linear layer of our own kernels does, far from what memory bounds.
// Part of no public header: for profiles, of an engine in the process that measures and of a
// server.
#ifndef REPRISE_ENGINE_PRODUCT_RATE_H_
#define REPRISE_ENGINE_PRODUCT_RATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::engine {

struct ProductRates {
  uint32_t tokens = 0;              // of the layer
  int64_t features = 0;             // of its inputs, and of its outputs
  std::vector<double> flops_per_s;  // by pass; a multiplication and an addition are two
};

// Of row-major weights or, on GPUs with matrix units, of packed ones, whichever is faster: one pass
// of either to warm up, and `passes` measured ones. Takes a stream and memory of its own, with
// matrix units 320 MiB and what partial sums need; the device should have nothing else to do.
// Errors: InvalidArgument on no pass; ResourceExhausted names the bytes; the device's.
absl::StatusOr<ProductRates> MeasureProducts(runtime::Device& device, runtime::DType dtype,
                                             uint32_t passes);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_PRODUCT_RATE_H_
