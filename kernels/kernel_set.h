// SPDX-License-Identifier: Apache-2.0
// KernelSet: the catalogue's kernels for one compute dtype, resolved on one device. Ops take it;
// nothing is looked up by name after this.
#ifndef REPRISE_KERNELS_KERNEL_SET_H_
#define REPRISE_KERNELS_KERNEL_SET_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::kernels {

class KernelSet {
 public:
  // Errors: NotFound names a kernel that this build lacks for the device.
  static absl::StatusOr<std::unique_ptr<KernelSet>> Load(runtime::Device& device,
                                                         runtime::DType dtype);

  // Whether a block is one thread of the CPU, and the host's own candidates apply.
  bool is_host_native() const { return linear_native.handle != nullptr; }

  runtime::DType dtype = runtime::DType::kF32;
  runtime::DeviceProperties device;

  runtime::Kernel fetch, plan, publish;
  runtime::Kernel embedding, rms_norm, rope_append, rope_append_normed, silu_mul;
  runtime::Kernel sample_partial, sample_final;
  runtime::Kernel random_fill, nan_fill;
  runtime::Kernel stamp, memory_read, memory_copy;
  runtime::Kernel linear_portable, attention_portable;
  // Host only; empty elsewhere.
  runtime::Kernel linear_native;
  // bf16 and f16 on devices with matrix units; empty elsewhere, and where an instance does not fit
  // the device (kernels/device/traits.h). By rows of a tile, the last owns whole tiles, see
  // linear.cc; by head size, see attention.cc.
  static constexpr int kNumLinearTiles = 6;
  runtime::Kernel linear_matrix[kNumLinearTiles];
  static constexpr int kNumHeadSizes = 4;
  runtime::Kernel attention_decode_matrix[kNumHeadSizes];
  runtime::Kernel attention_prefill_matrix[kNumHeadSizes];

 private:
  std::unique_ptr<runtime::KernelModule> module_;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_KERNEL_SET_H_
