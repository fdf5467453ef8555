// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_set.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/attention/matrix_geometry.h"
#include "kernels/catalog.h"
#include "kernels/linear/matrix_geometry.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Suffixes of the matrix-unit families, as in "reprise_linear_matrix_bf16_8".
constexpr const char* kLinearTileSuffix[KernelSet::kNumLinearTiles] = {"_8",  "_16",  "_32",
                                                                       "_64", "_128", "_whole"};
constexpr const char* kHeadSizeSuffix[KernelSet::kNumHeadSizes] = {"_32", "_64", "_128", "_256"};
constexpr int kNumSplitTiles = static_cast<int>(std::size(kMatrixTileRows));
static_assert(KernelSet::kNumLinearTiles == kNumSplitTiles + 1);
static_assert(KernelSet::kNumHeadSizes == static_cast<int>(std::size(kMatrixHeadSizes)));

// Finds kernels of one dtype in a module.
class Finder {
 public:
  Finder(const runtime::KernelModule& module, runtime::DType dtype) : module_(module) {
    const std::string_view name = runtime::NameOf(dtype);
    suffix_ = absl::StrCat("_", absl::string_view(name.data(), name.size()));
  }
  absl::Status Plain(const std::string& name, runtime::Kernel* kernel) const {
    REPRISE_ASSIGN_OR_RETURN(*kernel, module_.Find(name));
    return absl::OkStatus();
  }
  // `size`: what follows the dtype.
  absl::Status Typed(const char* name, runtime::Kernel* kernel, const char* size = "") const {
    return Plain(absl::StrCat(name, suffix_, size), kernel);
  }

 private:
  const runtime::KernelModule& module_;
  std::string suffix_;
};

absl::Status FindBlockKernels(const Finder& finder, KernelSet& set) {
  const std::pair<const char*, runtime::Kernel*> plain[] = {
      {"reprise_fetch", &set.fetch},
      {"reprise_plan", &set.plan},
      {"reprise_publish", &set.publish},
      {"reprise_sample_partial", &set.sample_partial},
      {"reprise_sample_final", &set.sample_final},
      {"reprise_stamp", &set.stamp},
      {"reprise_memory_read", &set.memory_read},
      {"reprise_memory_copy", &set.memory_copy},
  };
  for (const auto& [name, kernel] : plain) REPRISE_RETURN_IF_ERROR(finder.Plain(name, kernel));
  const std::pair<const char*, runtime::Kernel*> typed[] = {
      {"reprise_embedding", &set.embedding},
      {"reprise_rms_norm", &set.rms_norm},
      {"reprise_rope_append", &set.rope_append},
      {"reprise_rope_append_normed", &set.rope_append_normed},
      {"reprise_silu_mul", &set.silu_mul},
      {"reprise_random_fill", &set.random_fill},
      {"reprise_nan_fill", &set.nan_fill},
      {"reprise_linear_portable", &set.linear_portable},
      {"reprise_attention_portable", &set.attention_portable},
  };
  for (const auto& [name, kernel] : typed) REPRISE_RETURN_IF_ERROR(finder.Typed(name, kernel));
  return absl::OkStatus();
}

absl::Status FindMatrixKernels(const Finder& finder, const DeviceTraits& traits, KernelSet& set) {
  for (int i = 0; i < KernelSet::kNumLinearTiles; ++i) {
    if (i < kNumSplitTiles && !HasMatrixTile(traits, kMatrixTileRows[i])) continue;
    REPRISE_RETURN_IF_ERROR(
        finder.Typed("reprise_linear_matrix", &set.linear_matrix[i], kLinearTileSuffix[i]));
  }
  for (int i = 0; i < KernelSet::kNumHeadSizes; ++i) {
    if (!HasMatrixHeadSize(traits, kMatrixHeadSizes[i])) continue;
    REPRISE_RETURN_IF_ERROR(finder.Typed("reprise_attention_decode_matrix",
                                         &set.attention_decode_matrix[i], kHeadSizeSuffix[i]));
    REPRISE_RETURN_IF_ERROR(finder.Typed("reprise_attention_prefill_matrix",
                                         &set.attention_prefill_matrix[i], kHeadSizeSuffix[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelSet>> KernelSet::Load(runtime::Device& device,
                                                           runtime::DType dtype) {
  auto set = std::make_unique<KernelSet>();
  set->dtype = dtype;
  set->device = device.properties();
  REPRISE_ASSIGN_OR_RETURN(set->module_, device.Load(Catalog()));
  const Finder finder(*set->module_, dtype);
  REPRISE_RETURN_IF_ERROR(FindBlockKernels(finder, *set));
  const DeviceTraits traits = TraitsOf(device.properties().matrix_unit);
  if (device.properties().warp_size == 1) {
    REPRISE_RETURN_IF_ERROR(finder.Typed("reprise_linear_native", &set->linear_native));
  } else if (traits.matrix_unit != runtime::MatrixUnit::kNone && dtype != runtime::DType::kF32) {
    REPRISE_RETURN_IF_ERROR(FindMatrixKernels(finder, traits, *set));
  }
  return set;
}

}  // namespace reprise::kernels
