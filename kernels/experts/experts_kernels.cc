// SPDX-License-Identifier: Apache-2.0
// The kernels of mixtures of experts. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/experts/experts_combine_body.h"
#include "kernels/experts/experts_portable_body.h"
#include "kernels/experts/experts_route_body.h"
#include "kernels/experts/instances.h"
#if REPRISE_ON_GPU
#include "kernels/experts/experts_packed_body.h"
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_EXPERTS_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
