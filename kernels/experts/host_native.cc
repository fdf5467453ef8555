// SPDX-License-Identifier: Apache-2.0
// Experts' linear layers, native candidate of the host device: the host's linear (linear/
// host_native.cc), item by item. Grid x: tiles of kNativeTileFeatures output features.
#include "kernels/device/fp8.h"
#include "kernels/experts/expert_place.h"
#include "kernels/linear/host_native_targets.h"
#include "runtime/device.h"

namespace reprise::kernels::on_host {
namespace {

template <typename T, typename W = T>
void WalkItems(const runtime::HostBlockContext& context, const void* args, NativeRowsFn compute) {
  const ExpertsLinearArgs& a = *static_cast<const ExpertsLinearArgs*>(args);
  for (uint32_t i = 0; i < a.counts->num_items; ++i) {
    const ExpertItem item = a.items[i];
    compute(LinearOf<T, W>(a, item), static_cast<int>(context.block_x), item.count,
            RowsOf(a, item).token);
  }
}

}  // namespace

// The declarations of what is defined here are the catalogue's.
#define REPRISE_EXPERTS_NATIVE(suffix, T, W, rows)                               \
  void reprise_experts_native_##suffix(const runtime::HostBlockContext& context, \
                                       const void* args);                        \
  void reprise_experts_native_##suffix(const runtime::HostBlockContext& context, \
                                       const void* args) {                       \
    WalkItems<T, W>(context, args, NativeLinearTargets().front().rows);          \
  }
REPRISE_EXPERTS_NATIVE(f32, float, float, rows_f32)
REPRISE_EXPERTS_NATIVE(bf16, Bf16, Bf16, rows_bf16)
REPRISE_EXPERTS_NATIVE(f16, F16, F16, rows_f16)
REPRISE_EXPERTS_NATIVE(fp8_f32, float, E4m3, rows_f32_e4m3)
REPRISE_EXPERTS_NATIVE(fp8_bf16, Bf16, E4m3, rows_bf16_e4m3)
REPRISE_EXPERTS_NATIVE(fp8_f16, F16, E4m3, rows_f16_e4m3)
REPRISE_EXPERTS_NATIVE(int4_f32, float, Int4, rows_f32_int4)
REPRISE_EXPERTS_NATIVE(int4_bf16, Bf16, Int4, rows_bf16_int4)
REPRISE_EXPERTS_NATIVE(int4_f16, F16, Int4, rows_f16_int4)
REPRISE_EXPERTS_NATIVE(mxfp4_f32, float, Mxfp4, rows_f32_mxfp4)
REPRISE_EXPERTS_NATIVE(mxfp4_bf16, Bf16, Mxfp4, rows_bf16_mxfp4)
REPRISE_EXPERTS_NATIVE(mxfp4_f16, F16, Mxfp4, rows_f16_mxfp4)
#undef REPRISE_EXPERTS_NATIVE

}  // namespace reprise::kernels::on_host
