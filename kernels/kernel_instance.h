// SPDX-License-Identifier: Apache-2.0
// KernelInstance: what is said about one compiled kernel, once. An op's instances.h lists its
// instances for the preprocessor, one entry each:
//
//   X(symbol, family, Style, body, Args, threads, min_blocks, Activation, Weight, Kv, tile, fits)
//
//   symbol      the extern "C" name in device code
//   family      a KernelFamily: the op, and what a profile calls the kernel
//   Style       Block: one body for every device, the host's too (kernels/device/block.h)
//               Thread: GPUs alone (kernels/device/thread.h)
//               Host: the host alone, defined elsewhere in the op's folder
//   body, Args  the function that is compiled, and the struct that a launch copies
//   threads     of a block: Threads(n), ThreadsUpTo(n) where the launch chooses, or Warps(n)
//   min_blocks  that a multiprocessor must have room for; a bound on registers on NVIDIA. 0: none
//   Activation, Weight, Kv   the formats that it reads or writes: F32, Bf16, F16 or None; Kv: Fp8
//               too, E4M3 or E5M2, as the launch says
//   tile        rows of a tile, or the size of a head; 0 where instances do not differ by it
//   fits        a constexpr function of (DeviceTraits, tile): whether a device has the instance
//
// Everything follows from these lists: the kernels of every target (device/define_instances.h), the
// catalogue (catalog.h), what a KernelSet loads, what tests run on the CPU and what compiled code
// must contain. A target that `fits` rejects compiles a thread-style instance to an empty kernel,
// which nothing loads.
#ifndef REPRISE_KERNELS_KERNEL_INSTANCE_H_
#define REPRISE_KERNELS_KERNEL_INSTANCE_H_

#include <cstdint>
#include <string_view>

#include "kernels/device/thread_count.h"
#include "kernels/device/traits.h"
#include "kernels/weight_format.h"
#include "runtime/dtype.h"

namespace reprise::kernels {

// Kernels that differ in formats and tiles alone. Its address is its identity.
struct KernelFamily {
  std::string_view op;    // the folder
  std::string_view name;  // what a profile calls it
};

enum class KernelStyle : uint8_t { kBlock, kThread, kHost };

// The format of activations or of KV. kFp8: of KV alone, both 8-bit formats; one instance takes
// either.
enum class ElementFormat : uint8_t { kNone = 0, kF32, kBf16, kF16, kFp8 };

constexpr ElementFormat ElementFormatOf(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::kF32:
      return ElementFormat::kF32;
    case runtime::DType::kBf16:
      return ElementFormat::kBf16;
    case runtime::DType::kF16:
      return ElementFormat::kF16;
    case runtime::DType::kE4m3:
    case runtime::DType::kE5m2:
      return ElementFormat::kFp8;
  }
  return ElementFormat::kNone;
}

// "none", "f32", "bf16", "f16", "fp8".
constexpr std::string_view NameOf(ElementFormat format) {
  switch (format) {
    case ElementFormat::kNone:
      return "none";
    case ElementFormat::kF32:
      return "f32";
    case ElementFormat::kBf16:
      return "bf16";
    case ElementFormat::kF16:
      return "f16";
    case ElementFormat::kFp8:
      return "fp8";
  }
  return "unknown";
}

// Predicates of instances.
using FitsFn = bool (*)(const DeviceTraits& traits, int tile);
constexpr bool OnEveryDevice(const DeviceTraits&, int) { return true; }
constexpr bool OnHost(const DeviceTraits& traits, int) { return traits.warp_size == 1; }
constexpr bool OnMatrixUnits(const DeviceTraits& traits, int) {
  return traits.matrix_unit != runtime::MatrixUnit::kNone;
}

struct KernelInstance {
  std::string_view symbol;
  const KernelFamily* family = nullptr;
  KernelStyle style = KernelStyle::kBlock;
  ThreadCount threads;
  int min_blocks = 0;
  ElementFormat activation = ElementFormat::kNone;
  WeightFormat weight = WeightFormat::kNone;
  ElementFormat kv = ElementFormat::kNone;
  int tile = 0;
  FitsFn fits = nullptr;

  constexpr bool Fits(const DeviceTraits& traits) const { return fits(traits, tile); }
};

// An entry of an op's list as an element of its table, by its address the instance's identity:
//   inline constexpr KernelInstance kOpInstances[] =
//   {REPRISE_OP_INSTANCES(REPRISE_INSTANCE_FACTS)};
#define REPRISE_INSTANCE_FACTS(symbol, family, Style, body, Args, threads, min_blocks, Activation, \
                               Weight, Kv, tile, fits)                                             \
  ::reprise::kernels::KernelInstance{#symbol,                                                      \
                                     &family,                                                      \
                                     ::reprise::kernels::KernelStyle::k##Style,                    \
                                     threads,                                                      \
                                     min_blocks,                                                   \
                                     ::reprise::kernels::ElementFormat::k##Activation,             \
                                     ::reprise::kernels::WeightFormat::k##Weight,                  \
                                     ::reprise::kernels::ElementFormat::k##Kv,                     \
                                     tile,                                                         \
                                     &fits},

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_KERNEL_INSTANCE_H_
