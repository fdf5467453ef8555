// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/products.h"

#include <memory>
#include <utility>
#include <vector>

#include "kernels/packed_layout.h"
#include "kernels/weight_format.h"
#include "runtime/status_macros.h"
#include "tools/bench/linear_bench.h"
#include "tools/bench/linear_candidates.h"
#include "tools/bench/linear_shapes.h"

namespace reprise::tools {

absl::StatusOr<ProductRate> MeasureProducts(runtime::Device& device, runtime::DType dtype,
                                            uint32_t passes) {
  const bool host = device.properties().kind == runtime::DeviceKind::kHost;
  const bool packs = !host && kernels::CanPack(kernels::WeightFormatOf(dtype));
  // A millisecond or so of the host, and of matrix units, which take packed weights too.
  ProductRate rate{.tokens = packs ? 4096u : 64u,
                   .features = packs ? 8192 : 1024,
                   .dtype = dtype,
                   .flops_per_s = {}};
  std::vector<LinearShape> shapes = {{.name = "products",
                                      .out_features = rate.features,
                                      .in_features = rate.features,
                                      .format = kernels::WeightFormatOf(dtype)}};
  // The layouts that layers may have there; what is faster counts.
  REPRISE_ASSIGN_OR_RETURN(auto candidates, ParseLinearCandidates(packs ? "best,packed" : "best"));
  const uint64_t weight_bytes = shapes[0].WeightBytes();
  REPRISE_ASSIGN_OR_RETURN(const auto bench,
                           LinearBench::Create(device, std::move(shapes), std::move(candidates),
                                               {.dtype = dtype,
                                                .rows = {rate.tokens},
                                                .rounds = 1,
                                                .replays = passes,
                                                .calls = 1,
                                                .pool_bytes = weight_bytes}));
  std::vector<LinearCell> cells = bench->Cells();
  REPRISE_RETURN_IF_ERROR(bench->Measure([](uint32_t) { return absl::OkStatus(); }, &cells[0]));
  const double flops =
      2.0 * rate.tokens * static_cast<double>(rate.features) * static_cast<double>(rate.features);
  const LinearTimes* fastest = &cells[0].candidates[0];
  for (const LinearTimes& times : cells[0].candidates)
    if (times.MedianNs() < fastest->MedianNs()) fastest = &times;
  for (const double ns : fastest->unit_ns.values()) rate.flops_per_s.Add(flops / ns * 1e9);
  return rate;
}

}  // namespace reprise::tools
