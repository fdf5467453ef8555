// SPDX-License-Identifier: Apache-2.0
// Paged attention, native candidate of the host device: the entry points of the instances in style
// Host. See attention.h for the contract and host_native.cc for how.
#ifndef REPRISE_KERNELS_ATTENTION_HOST_NATIVE_H_
#define REPRISE_KERNELS_ATTENTION_HOST_NATIVE_H_

#include "runtime/device.h"

namespace reprise::kernels::on_host {

// `args`: AttentionArgs with pass_rows set, not swizzled. Any grid; its blocks take (item, KV head)
// pairs in turn. Shared memory: NativeAttentionLayout (attention_geometry.h).
void reprise_attention_native_f32(const runtime::HostBlockContext& context, const void* args);
void reprise_attention_native_bf16(const runtime::HostBlockContext& context, const void* args);
void reprise_attention_native_f16(const runtime::HostBlockContext& context, const void* args);
void reprise_attention_native_f32_fp8(const runtime::HostBlockContext& context, const void* args);
void reprise_attention_native_bf16_fp8(const runtime::HostBlockContext& context, const void* args);
void reprise_attention_native_f16_fp8(const runtime::HostBlockContext& context, const void* args);

}  // namespace reprise::kernels::on_host

#endif  // REPRISE_KERNELS_ATTENTION_HOST_NATIVE_H_
