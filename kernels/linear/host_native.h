// SPDX-License-Identifier: Apache-2.0
// Linear, native candidate of the host device: the entry points of the instances in style Host. See
// linear.h for the contract and host_native.cc for how.
#ifndef REPRISE_KERNELS_LINEAR_HOST_NATIVE_H_
#define REPRISE_KERNELS_LINEAR_HOST_NATIVE_H_

#include "runtime/device.h"

namespace reprise::kernels::on_host {

// `args`: LinearArgs. Grid x: tiles of kNativeTileFeatures output features (linear_geometry.h);
// grid y: 1. One K order for every number of rows.
void reprise_linear_native_f32(const runtime::HostBlockContext& context, const void* args);
void reprise_linear_native_bf16(const runtime::HostBlockContext& context, const void* args);
void reprise_linear_native_f16(const runtime::HostBlockContext& context, const void* args);
// Weights of 8 bits.
void reprise_linear_native_fp8_f32(const runtime::HostBlockContext& context, const void* args);
void reprise_linear_native_fp8_bf16(const runtime::HostBlockContext& context, const void* args);
void reprise_linear_native_fp8_f16(const runtime::HostBlockContext& context, const void* args);
// And of 4 bits.
void reprise_linear_native_int4_f32(const runtime::HostBlockContext& context, const void* args);
void reprise_linear_native_int4_bf16(const runtime::HostBlockContext& context, const void* args);
void reprise_linear_native_int4_f16(const runtime::HostBlockContext& context, const void* args);

}  // namespace reprise::kernels::on_host

#endif  // REPRISE_KERNELS_LINEAR_HOST_NATIVE_H_
