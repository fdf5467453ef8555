// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of Mamba-2 layers. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_MAMBA_INSTANCES_H_
#define REPRISE_KERNELS_MAMBA_INSTANCES_H_

#include "kernels/kernel_instance.h"
#include "kernels/mamba/mamba_args.h"

#define REPRISE_MAMBA_INSTANCES(X)                                                                 \
  X(reprise_mamba_conv_f32, kMambaConv, Block, MambaConvBody<float>, MambaConvArgs, Threads(256),  \
    0, F32, None, None, 0, OnEveryDevice)                                                          \
  X(reprise_mamba_conv_bf16, kMambaConv, Block, MambaConvBody<Bf16>, MambaConvArgs, Threads(256),  \
    0, Bf16, None, None, 0, OnEveryDevice)                                                         \
  X(reprise_mamba_conv_f16, kMambaConv, Block, MambaConvBody<F16>, MambaConvArgs, Threads(256), 0, \
    F16, None, None, 0, OnEveryDevice)                                                             \
  X(reprise_mamba_scan_f32, kMambaScan, Block, MambaScanBody<float>, MambaScanArgs,                \
    Threads(kMambaScanThreads), 3, F32, None, None, 0, OnEveryDevice)                              \
  X(reprise_mamba_scan_bf16, kMambaScan, Block, MambaScanBody<Bf16>, MambaScanArgs,                \
    Threads(kMambaScanThreads), 4, Bf16, None, None, 0, OnEveryDevice)                             \
  X(reprise_mamba_scan_f16, kMambaScan, Block, MambaScanBody<F16>, MambaScanArgs,                  \
    Threads(kMambaScanThreads), 4, F16, None, None, 0, OnEveryDevice)                              \
  X(reprise_mamba_norm_f32, kMambaNorm, Block, MambaNormBody<float>, MambaNormArgs, Threads(256),  \
    0, F32, None, None, 0, OnEveryDevice)                                                          \
  X(reprise_mamba_norm_bf16, kMambaNorm, Block, MambaNormBody<Bf16>, MambaNormArgs, Threads(256),  \
    0, Bf16, None, None, 0, OnEveryDevice)                                                         \
  X(reprise_mamba_norm_f16, kMambaNorm, Block, MambaNormBody<F16>, MambaNormArgs, Threads(256), 0, \
    F16, None, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kMambaConv = {"mamba", "mamba_conv"};
inline constexpr KernelFamily kMambaScan = {"mamba", "mamba_scan"};
inline constexpr KernelFamily kMambaNorm = {"mamba", "mamba_norm"};

inline constexpr KernelInstance kMambaInstances[] = {
    REPRISE_MAMBA_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_MAMBA_INSTANCES_H_
