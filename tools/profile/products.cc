// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/products.h"

#include "engine/product_rate.h"
#include "runtime/status_macros.h"

namespace reprise::tools {

absl::StatusOr<ProductRate> MeasureProducts(runtime::Device& device, runtime::DType dtype,
                                            uint32_t passes) {
  REPRISE_ASSIGN_OR_RETURN(const engine::ProductRates rates,
                           engine::MeasureProducts(device, dtype, passes));
  ProductRate rate{
      .tokens = rates.tokens, .features = rates.features, .dtype = dtype, .flops_per_s = {}};
  for (const double flops : rates.flops_per_s) rate.flops_per_s.Add(flops);
  return rate;
}

}  // namespace reprise::tools
