// SPDX-License-Identifier: Apache-2.0
// The kernels of RMSNorm. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/rms_norm/instances.h"
#include "kernels/rms_norm/rms_norm_add_body.h"
#include "kernels/rms_norm/rms_norm_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_RMS_NORM_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
