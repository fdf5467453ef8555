// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/emulated_kernels.h"

#include <cstddef>
#include <vector>

#include "kernels/catalog.h"
#include "runtime/check.h"

// The functions of every instance but the host's own, as the ops' sources define them for a unit.
// Those of instances that do not fit it are empty, and stay out of the lists below.
#define REPRISE_DECLARE_Block(symbol) \
  void symbol(const runtime::HostBlockContext& context, const void* args);
#define REPRISE_DECLARE_Thread(symbol) REPRISE_DECLARE_Block(symbol)
#define REPRISE_DECLARE_Host(symbol)
#define REPRISE_DECLARE(symbol, family, Style, ...) REPRISE_DECLARE_##Style(symbol)
namespace reprise::kernels {
namespace on_mma {
REPRISE_FOR_EACH_INSTANCE(REPRISE_DECLARE)
}  // namespace on_mma
namespace on_mfma {
REPRISE_FOR_EACH_INSTANCE(REPRISE_DECLARE)
}  // namespace on_mfma
namespace on_wmma {
REPRISE_FOR_EACH_INSTANCE(REPRISE_DECLARE)
}  // namespace on_wmma
}  // namespace reprise::kernels

namespace reprise::testing {
namespace {

using runtime::HostKernelFn;
using runtime::MatrixUnit;

#define REPRISE_FUNCTION_Block(symbol) &symbol,
#define REPRISE_FUNCTION_Thread(symbol) &symbol,
#define REPRISE_FUNCTION_Host(symbol) nullptr,
#define REPRISE_ON_MMA(symbol, family, Style, ...) REPRISE_FUNCTION_##Style(kernels::on_mma::symbol)
#define REPRISE_ON_MFMA(symbol, family, Style, ...) \
  REPRISE_FUNCTION_##Style(kernels::on_mfma::symbol)
#define REPRISE_ON_WMMA(symbol, family, Style, ...) \
  REPRISE_FUNCTION_##Style(kernels::on_wmma::symbol)

// By instance, in the catalogue's order.
constexpr HostKernelFn kOnMma[] = {REPRISE_FOR_EACH_INSTANCE(REPRISE_ON_MMA)};
constexpr HostKernelFn kOnMfma[] = {REPRISE_FOR_EACH_INSTANCE(REPRISE_ON_MFMA)};
constexpr HostKernelFn kOnWmma[] = {REPRISE_FOR_EACH_INSTANCE(REPRISE_ON_WMMA)};

std::vector<runtime::KernelDef> Fitting(MatrixUnit unit, const HostKernelFn* functions) {
  std::vector<runtime::KernelDef> fitting;
  for (const auto& table : kernels::kInstanceTables) {
    for (const kernels::KernelInstance& instance : table) {
      const HostKernelFn function = *functions++;
      if (instance.Fits(kernels::TraitsOf(unit))) fitting.push_back({instance.symbol, function});
    }
  }
  return fitting;
}

}  // namespace

std::span<const runtime::KernelDef> EmulatedKernels(MatrixUnit unit) {
  static const std::vector<runtime::KernelDef> mma = Fitting(MatrixUnit::kMma, kOnMma);
  static const std::vector<runtime::KernelDef> mfma = Fitting(MatrixUnit::kMfma, kOnMfma);
  static const std::vector<runtime::KernelDef> wmma = Fitting(MatrixUnit::kWmma, kOnWmma);
  switch (unit) {
    case MatrixUnit::kMma:
      return mma;
    case MatrixUnit::kMfma:
      return mfma;
    case MatrixUnit::kWmma:
      return wmma;
    case MatrixUnit::kNone:
      break;
  }
  REPRISE_CHECK(false);
  return {};
}

}  // namespace reprise::testing
