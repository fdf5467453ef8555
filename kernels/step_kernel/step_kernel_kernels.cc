// SPDX-License-Identifier: Apache-2.0
// The step kernels. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/step_kernel/instances.h"
#include "kernels/step_kernel/step_stage.h"
#if REPRISE_ON_GPU && REPRISE_GROUP_PRODUCTS
#include "kernels/step_kernel/step_kernel_body.h"
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

#if REPRISE_ON_GPU && !REPRISE_GROUP_PRODUCTS
template <typename T, int kHeadSize>
REPRISE_FN void StepKernelBody(const StepKernelArgs&, unsigned char*) {}
#endif

REPRISE_STEP_KERNEL_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
