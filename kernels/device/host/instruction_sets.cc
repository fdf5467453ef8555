// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/host/instruction_sets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace reprise::kernels::on_host {

bool RunsInstructionSet([[maybe_unused]] std::string_view name) {
#if defined(__x86_64__)
  const bool sse4 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  if (name == "sse4") return sse4;
  // Not every compiler's builtin knows F16C. It uses AVX's registers: AVX2's check covers the
  // operating system.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool avx2 = sse4 && f16c && __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  if (name == "avx2") return avx2;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw");
  if (name == "avx512") return avx512;
  if (name == "avx512_bf16") return avx512 && __builtin_cpu_supports("avx512bf16");
#endif
  return true;  // what the compiler takes for granted everywhere
}

}  // namespace reprise::kernels::on_host
