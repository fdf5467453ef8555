// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_set.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/catalog.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Suffixes of the tensor-core families, as in "reprise_linear_mma_bf16_8".
constexpr const char* kLinearTileSuffix[KernelSet::kNumLinearTiles] = {"_8",  "_16",  "_32",
                                                                       "_64", "_128", "_whole"};
constexpr const char* kHeadSizeSuffix[KernelSet::kNumHeadSizes] = {"_32", "_64", "_128", "_256"};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelSet>> KernelSet::Load(runtime::Device& device,
                                                           runtime::DType dtype) {
  auto set = std::make_unique<KernelSet>();
  set->dtype = dtype;
  set->device = device.properties();
  REPRISE_ASSIGN_OR_RETURN(set->module_, device.Load(Catalog()));

  const std::string_view dtype_name = NameOf(dtype);
  const std::string suffix =
      absl::StrCat("_", absl::string_view(dtype_name.data(), dtype_name.size()));
  auto find = [&](const std::string& name, runtime::Kernel* kernel) -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(*kernel, set->module_->Find(name));
    return absl::OkStatus();
  };
  const std::pair<const char*, runtime::Kernel*> plain[] = {
      {"reprise_fetch", &set->fetch},
      {"reprise_plan", &set->plan},
      {"reprise_publish", &set->publish},
      {"reprise_sample_partial", &set->sample_partial},
      {"reprise_sample_final", &set->sample_final},
  };
  for (const auto& [name, kernel] : plain) REPRISE_RETURN_IF_ERROR(find(name, kernel));
  const std::pair<const char*, runtime::Kernel*> typed[] = {
      {"reprise_embedding", &set->embedding},
      {"reprise_rms_norm", &set->rms_norm},
      {"reprise_rope_append", &set->rope_append},
      {"reprise_silu_mul", &set->silu_mul},
      {"reprise_random_fill", &set->random_fill},
      {"reprise_nan_fill", &set->nan_fill},
      {"reprise_linear_portable", &set->linear_portable},
      {"reprise_attention_portable", &set->attention_portable},
  };
  for (const auto& [name, kernel] : typed)
    REPRISE_RETURN_IF_ERROR(find(absl::StrCat(name, suffix), kernel));

  if (device.kind() == runtime::DeviceKind::kHost) {
    REPRISE_RETURN_IF_ERROR(
        find(absl::StrCat("reprise_linear_native", suffix), &set->linear_native));
  } else if (device.kind() == runtime::DeviceKind::kCuda && dtype != runtime::DType::kF32) {
    for (int i = 0; i < kNumLinearTiles; ++i)
      REPRISE_RETURN_IF_ERROR(find(absl::StrCat("reprise_linear_mma", suffix, kLinearTileSuffix[i]),
                                   &set->linear_mma[i]));
    for (int i = 0; i < kNumHeadSizes; ++i) {
      REPRISE_RETURN_IF_ERROR(
          find(absl::StrCat("reprise_attention_decode_mma", suffix, kHeadSizeSuffix[i]),
               &set->attention_decode_mma[i]));
      REPRISE_RETURN_IF_ERROR(
          find(absl::StrCat("reprise_attention_prefill_mma", suffix, kHeadSizeSuffix[i]),
               &set->attention_prefill_mma[i]));
    }
  }
  return set;
}

}  // namespace reprise::kernels
