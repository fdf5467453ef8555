// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_set.h"

#include "kernels/catalog.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

bool IsWanted(const KernelInstance& instance, const DeviceTraits& traits, runtime::DType dtype) {
  return instance.Fits(traits) && (instance.activation == ElementFormat::kNone ||
                                   instance.activation == ElementFormatOf(dtype));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelSet>> KernelSet::Load(runtime::Device& device,
                                                           runtime::DType dtype) {
  auto set = std::make_unique<KernelSet>();
  set->dtype = dtype;
  set->device = device.properties();
  REPRISE_ASSIGN_OR_RETURN(set->module_, device.Load(Catalog()));
  const DeviceTraits traits = set->traits();
  for (const std::span<const KernelInstance> table : kInstanceTables) {
    for (const KernelInstance& instance : table) {
      if (!IsWanted(instance, traits, dtype)) continue;
      REPRISE_ASSIGN_OR_RETURN(const runtime::Kernel kernel, set->module_->Find(instance.symbol));
      set->loaded_.push_back(
          {&instance, kernel, static_cast<unsigned>(instance.threads.Max(traits))});
    }
  }
  return set;
}

const LoadedKernel* KernelSet::Find(const KernelInstance& instance) const {
  for (const LoadedKernel& loaded : loaded_)
    if (loaded.instance == &instance) return &loaded;
  return nullptr;
}

const LoadedKernel* KernelSet::Find(const KernelFamily& family, int tile) const {
  for (const LoadedKernel& loaded : loaded_)
    if (loaded.instance->family == &family && loaded.instance->tile == tile) return &loaded;
  return nullptr;
}

const LoadedKernel* KernelSet::Find(const KernelFamily& family, int tile, runtime::DType kv) const {
  for (const LoadedKernel& loaded : loaded_)
    if (loaded.instance->family == &family && loaded.instance->tile == tile &&
        loaded.instance->kv == ElementFormatOf(kv))
      return &loaded;
  return nullptr;
}

const LoadedKernel& KernelSet::Get(const KernelFamily& family, int tile) const {
  const LoadedKernel* const found = Find(family, tile);
  REPRISE_CHECK(found != nullptr);
  return *found;
}

}  // namespace reprise::kernels
