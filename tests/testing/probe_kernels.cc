// SPDX-License-Identifier: Apache-2.0
// The probe kernels on the host, and the image of all; see probe_kernels.h.
#include "tests/testing/probe_kernels.h"

#include <atomic>
#include <chrono>
#include <span>
#include <stdexcept>
#include <thread>

#if REPRISE_WITH_CUDA
extern "C" {
extern const std::byte reprise_fatbin_probe_kernels[];
extern const std::byte reprise_fatbin_probe_kernels_end[];
}
#endif

namespace reprise::testing {
namespace {

using runtime::HostBlockContext;

void Affine(const HostBlockContext&, const void* raw) {
  const auto& args = *static_cast<const ProbeAffineArgs*>(raw);
  *args.x = *args.x * args.mul + args.add;
}

void Count(const HostBlockContext& context, const void* raw) {
  const auto& args = *static_cast<const ProbeCountArgs*>(raw);
  const uint32_t block = context.block_y * context.grid_x + context.block_x;
  const std::span shared(reinterpret_cast<uint32_t*>(context.shared), args.shared_words);
  for (uint32_t& word : shared) word = block;
  // Gives a thread that wrongly shares this memory the time to write to it.
  if (block % 64 == 0) std::this_thread::yield();
  for (const uint32_t word : shared) {
    if (word != block) return;
  }
  std::atomic_ref<uint32_t>(args.counts[block]).fetch_add(1, std::memory_order_relaxed);
}

void Wait(const HostBlockContext&, const void* raw) {
  const auto& args = *static_cast<const ProbeWaitArgs*>(raw);
  const std::atomic_ref<uint32_t> flag(*const_cast<uint32_t*>(args.flag));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (flag.load(std::memory_order_acquire) == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
}

void Large(const HostBlockContext&, const void* raw) {
  const auto& args = *static_cast<const ProbeLargeArgs*>(raw);
  uint32_t sum = 0;
  for (const uint32_t word : args.words) sum += word;
  *args.sum = sum;
}

void Fault(const HostBlockContext&, const void*) { throw std::runtime_error("a fault on purpose"); }

constexpr runtime::KernelDef kKernels[] = {
    {kProbeAffine, Affine}, {kProbeCount, Count}, {kProbeWait, Wait},
    {kProbeLarge, Large},   {kProbeFault, Fault}, {kProbeNowhere, nullptr},
};

}  // namespace

runtime::KernelImage ProbeImage() {
#if REPRISE_WITH_CUDA
  static const std::span<const std::byte> fatbins[] = {
      {reprise_fatbin_probe_kernels, reprise_fatbin_probe_kernels_end}};
  return {.kernels = kKernels, .cuda_fatbins = fatbins};
#else
  return {.kernels = kKernels, .cuda_fatbins = {}};
#endif
}

}  // namespace reprise::testing
