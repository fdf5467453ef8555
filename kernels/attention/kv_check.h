// SPDX-License-Identifier: Apache-2.0
// Whether an op has kernels for a KV cache of some format.
#ifndef REPRISE_KERNELS_ATTENTION_KV_CHECK_H_
#define REPRISE_KERNELS_ATTENTION_KV_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/kernel_set.h"

namespace reprise::kernels {

// Unimplemented "<op>: KV is <got> ...; allowed: <what instances of the family have>";
// InvalidArgument on scales where KV has none.
inline absl::Status CheckKvFormat(const char* op, const KernelSet& kernels,
                                  const KernelFamily& family, runtime::DType kv,
                                  const KvScales& scales) {
  if (scales.any() && !runtime::IsFp8(kv))
    return absl::InvalidArgumentError(absl::StrCat(op, ": got scales for KV of ",
                                                   std::string(runtime::NameOf(kv)),
                                                   "; allowed: with fp8_e4m3 and fp8_e5m2"));
  std::string allowed;
  for (const LoadedKernel& loaded : kernels.loaded()) {
    if (loaded.instance->family != &family) continue;
    if (loaded.instance->kv == ElementFormatOf(kv)) return absl::OkStatus();
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ",
                    std::string(NameOf(loaded.instance->kv)));
  }
  return absl::UnimplementedError(
      absl::StrCat(op, ": KV is ", std::string(runtime::NameOf(kv)), " with activations of ",
                   std::string(runtime::NameOf(kernels.dtype)), "; allowed: ", allowed));
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_KV_CHECK_H_
