// SPDX-License-Identifier: Apache-2.0
// The catalogue: every op's table of instances, in one visible list. An op that is missing here
// does not exist.
#ifndef REPRISE_KERNELS_CATALOG_H_
#define REPRISE_KERNELS_CATALOG_H_

#include <span>

#include "kernels/attention/instances.h"
#include "kernels/block_copy/instances.h"
#include "kernels/embedding/instances.h"
#include "kernels/experts/instances.h"
#include "kernels/fill/instances.h"
#include "kernels/gather_columns/instances.h"
#include "kernels/linear/instances.h"
#include "kernels/mamba/instances.h"
#include "kernels/memory_probe/instances.h"
#include "kernels/page_walk/instances.h"
#include "kernels/plan/instances.h"
#include "kernels/rms_norm/instances.h"
#include "kernels/rope_append/instances.h"
#include "kernels/round_rows/instances.h"
#include "kernels/sample/instances.h"
#include "kernels/silu_mul/instances.h"
#include "kernels/softcap/instances.h"
#include "kernels/stamp/instances.h"
#include "kernels/step/instances.h"
#include "kernels/step_kernel/instances.h"
#include "runtime/device.h"

// OP(X, list, table) for every op: the list of its instances for the preprocessor, and the same as
// a table of facts.
#define REPRISE_FOR_EACH_OP(OP, X)                                 \
  OP(X, REPRISE_STEP_INSTANCES, kStepInstances)                    \
  OP(X, REPRISE_PLAN_INSTANCES, kPlanInstances)                    \
  OP(X, REPRISE_EMBEDDING_INSTANCES, kEmbeddingInstances)          \
  OP(X, REPRISE_RMS_NORM_INSTANCES, kRmsNormInstances)             \
  OP(X, REPRISE_LINEAR_INSTANCES, kLinearInstances)                \
  OP(X, REPRISE_ROPE_APPEND_INSTANCES, kRopeAppendInstances)       \
  OP(X, REPRISE_ATTENTION_INSTANCES, kAttentionInstances)          \
  OP(X, REPRISE_SILU_MUL_INSTANCES, kSiluMulInstances)             \
  OP(X, REPRISE_GATHER_COLUMNS_INSTANCES, kGatherColumnsInstances) \
  OP(X, REPRISE_ROUND_ROWS_INSTANCES, kRoundRowsInstances)         \
  OP(X, REPRISE_EXPERTS_INSTANCES, kExpertsInstances)              \
  OP(X, REPRISE_MAMBA_INSTANCES, kMambaInstances)                  \
  OP(X, REPRISE_STEP_KERNEL_INSTANCES, kStepKernelInstances)       \
  OP(X, REPRISE_SOFTCAP_INSTANCES, kSoftcapInstances)              \
  OP(X, REPRISE_SAMPLE_INSTANCES, kSampleInstances)                \
  OP(X, REPRISE_FILL_INSTANCES, kFillInstances)                    \
  OP(X, REPRISE_BLOCK_COPY_INSTANCES, kBlockCopyInstances)         \
  OP(X, REPRISE_STAMP_INSTANCES, kStampInstances)                  \
  OP(X, REPRISE_MEMORY_PROBE_INSTANCES, kMemoryProbeInstances)     \
  OP(X, REPRISE_PAGE_WALK_INSTANCES, kPageWalkInstances)

// X(symbol, family, Style, ...) for every instance of every op; columns: kernel_instance.h.
#define REPRISE_FOR_EACH_INSTANCE(X) REPRISE_FOR_EACH_OP(REPRISE_INSTANCES_OF_OP, X)
#define REPRISE_INSTANCES_OF_OP(X, list, table) list(X)

namespace reprise::kernels {

// The facts of every instance, a table per op.
#define REPRISE_TABLE_OF_OP(X, list, table) std::span<const KernelInstance>(table),
inline constexpr std::span<const KernelInstance> kInstanceTables[] = {
    REPRISE_FOR_EACH_OP(REPRISE_TABLE_OF_OP, )  //
};
#undef REPRISE_TABLE_OF_OP

// Instances that exist on a GPU with such a matrix unit, for all dtypes.
constexpr int NumGpuInstances(runtime::MatrixUnit unit) {
  int count = 0;
  for (const std::span<const KernelInstance> table : kInstanceTables)
    for (const KernelInstance& instance : table) count += instance.Fits(TraitsOf(unit)) ? 1 : 0;
  return count;
}

// The budget of these: every instance costs build time, load time and 10 to 60 KB of the binary. To
// raise a number, say in the commit what the new instances win.
constexpr int InstanceBudget(runtime::MatrixUnit unit) {
  return unit == runtime::MatrixUnit::kMma ? 261 : 163;
}

// All instances with their host functions, and the device code of this build. Static storage.
const runtime::KernelImage& Catalog();

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_CATALOG_H_
