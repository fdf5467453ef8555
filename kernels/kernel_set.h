// SPDX-License-Identifier: Apache-2.0
// KernelSet: the catalogue's instances for one compute dtype, loaded on one device. Ops take it,
// and choose among the instances of their own table; names are looked up once, in Load.
#ifndef REPRISE_KERNELS_KERNEL_SET_H_
#define REPRISE_KERNELS_KERNEL_SET_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kernel_instance.h"
#include "kernels/linear/linear_table.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::kernels {

struct LoadedKernel {
  const KernelInstance* instance = nullptr;
  runtime::Kernel kernel;
  unsigned threads = 0;  // of a block on this device; the most where launches choose

  // What a profile calls its launches.
  runtime::LaunchLabel label() const { return {.op = instance->family->name}; }
};

class KernelSet {
 public:
  // Loads every instance that fits the device and whose activations, where it has any, are of
  // `dtype`. Errors: NotFound names a kernel that this build lacks for the device.
  static absl::StatusOr<std::unique_ptr<KernelSet>> Load(runtime::Device& device,
                                                         runtime::DType dtype);

  // An instance of an op's table; nullptr where it is not loaded. No allocation.
  const LoadedKernel* Find(const KernelInstance& instance) const;
  // The first instance of a family with that tile; nullptr where there is none. No allocation.
  const LoadedKernel* Find(const KernelFamily& family, int tile = 0) const;
  // Of those, the one that takes KV of `kv`.
  const LoadedKernel* Find(const KernelFamily& family, int tile, runtime::DType kv) const;
  // REQUIRES: there is one, as there is of every family in block style.
  const LoadedKernel& Get(const KernelFamily& family, int tile = 0) const;
  // In the catalogue's order.
  std::span<const LoadedKernel> loaded() const { return loaded_; }

  // Whether a block is one thread of the CPU, and the host's own candidates apply.
  bool on_host() const { return device.warp_size == 1; }
  // Of the device's matrix unit, with its own warp size: a GPU without one is not the host.
  DeviceTraits traits() const {
    DeviceTraits traits = TraitsOf(device.matrix_unit);
    traits.warp_size = device.warp_size;
    if (device.compute_capability == 0 || device.compute_capability == 90) return traits;
    return device.compute_capability < 90 ? WithoutBulkCopy(traits) : WithoutGroupProducts(traits);
  }

  runtime::DType dtype = runtime::DType::kF32;
  runtime::DeviceProperties device;
  // What Linear follows (linear_choice.h): CheckLinearTable has accepted it. Set before anything
  // asks what launches take, and left alone from there on.
  LinearTable linear_table;

 private:
  std::unique_ptr<runtime::KernelModule> module_;
  std::vector<LoadedKernel> loaded_;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_KERNEL_SET_H_
