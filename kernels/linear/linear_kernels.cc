// SPDX-License-Identifier: Apache-2.0
// The kernels of linear. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear_portable_body.h"
#if REPRISE_ON_GPU
#include "kernels/linear/linear_matrix_body.h"
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_LINEAR_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
