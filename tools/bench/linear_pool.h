// SPDX-License-Identifier: Apache-2.0
// LinearPool: random weights of one format in device memory, for calls of the linear op to read. It
// does not know where a weight begins: linear_shapes.h says that.
#ifndef REPRISE_TOOLS_BENCH_LINEAR_POOL_H_
#define REPRISE_TOOLS_BENCH_LINEAR_POOL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/weight_format.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"

namespace reprise::tools {

struct LinearPool {
  runtime::DeviceBuffer elements;
  runtime::DeviceBuffer scales;  // f32, of int4 ScaleWord's; none where the format has none
};

// Fills it with weights whose deviation is about 0.02, as models are initialised, and scales that
// differ from each other. Of int4 all bits are elements, and zero points are 0 to 15. packed: all
// that read it read packed weights. If not, elements are finite both as packed and as row-major
// ones. Waits for `stream`. Errors: the device's.
absl::Status FillLinearPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                            kernels::WeightFormat format, bool packed, uint64_t seed,
                            const LinearPool& pool);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LINEAR_POOL_H_
