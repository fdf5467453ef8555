// SPDX-License-Identifier: Apache-2.0
#include "kernels/catalog.h"

#include "kernels/device_code.h"

namespace reprise::kernels {

using runtime::KernelDef;
using runtime::MatrixUnit;

static_assert(NumGpuInstances(MatrixUnit::kMma) <= InstanceBudget(MatrixUnit::kMma));
static_assert(NumGpuInstances(MatrixUnit::kMfma) <= InstanceBudget(MatrixUnit::kMfma));
static_assert(NumGpuInstances(MatrixUnit::kWmma) <= InstanceBudget(MatrixUnit::kWmma));

// The host's functions, which the ops' sources define: of every instance but those in thread style.
#define REPRISE_DECLARE_Block(symbol) \
  void symbol(const runtime::HostBlockContext& context, const void* args);
#define REPRISE_DECLARE_Host(symbol) REPRISE_DECLARE_Block(symbol)
#define REPRISE_DECLARE_Thread(symbol)
#define REPRISE_DECLARE(symbol, family, Style, ...) REPRISE_DECLARE_##Style(symbol)
namespace on_host {
REPRISE_FOR_EACH_INSTANCE(REPRISE_DECLARE)
}  // namespace on_host

namespace {

// All device code waits: see thread.h.
#define REPRISE_DEF_Block(symbol) KernelDef{#symbol, &on_host::symbol, true},
#define REPRISE_DEF_Host(symbol) REPRISE_DEF_Block(symbol)
#define REPRISE_DEF_Thread(symbol) KernelDef{#symbol, nullptr, true},
#define REPRISE_DEF(symbol, family, Style, ...) REPRISE_DEF_##Style(symbol)
constexpr KernelDef kKernels[] = {
    REPRISE_FOR_EACH_INSTANCE(REPRISE_DEF)  //
};

}  // namespace

const runtime::KernelImage& Catalog() {
  static const runtime::KernelImage image{kKernels, CudaFatbins(), HipCodeObjects()};
  return image;
}

}  // namespace reprise::kernels
