// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/emulated_kernels.h"

#include <initializer_list>
#include <vector>

#include "runtime/check.h"

namespace reprise::kernels {

#define REPRISE_DECLARE_TABLES(ns)                        \
  namespace ns {                                          \
  std::span<const runtime::KernelDef> BlockKernels();     \
  std::span<const runtime::KernelDef> LinearKernels();    \
  std::span<const runtime::KernelDef> AttentionKernels(); \
  }
REPRISE_DECLARE_TABLES(on_mma)
REPRISE_DECLARE_TABLES(on_mfma)
REPRISE_DECLARE_TABLES(on_wmma)

}  // namespace reprise::kernels

namespace reprise::testing {
namespace {

using Kernels = std::vector<runtime::KernelDef>;

Kernels Concatenate(std::initializer_list<std::span<const runtime::KernelDef>> tables) {
  Kernels all;
  for (const auto& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

}  // namespace

std::span<const runtime::KernelDef> EmulatedKernels(runtime::MatrixUnit unit) {
  using namespace kernels;  // on_mma and its like, no more
  static const Kernels mma =
      Concatenate({on_mma::BlockKernels(), on_mma::LinearKernels(), on_mma::AttentionKernels()});
  static const Kernels mfma =
      Concatenate({on_mfma::BlockKernels(), on_mfma::LinearKernels(), on_mfma::AttentionKernels()});
  static const Kernels wmma =
      Concatenate({on_wmma::BlockKernels(), on_wmma::LinearKernels(), on_wmma::AttentionKernels()});
  switch (unit) {
    case runtime::MatrixUnit::kMma:
      return mma;
    case runtime::MatrixUnit::kMfma:
      return mfma;
    case runtime::MatrixUnit::kWmma:
      return wmma;
    case runtime::MatrixUnit::kNone:
      break;
  }
  REPRISE_CHECK(false);
  return {};
}

}  // namespace reprise::testing
