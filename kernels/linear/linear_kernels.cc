// SPDX-License-Identifier: Apache-2.0
// The kernels of linear. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear_portable_body.h"
#if REPRISE_ON_GPU
#include "kernels/linear/linear_matrix_body.h"
#include "kernels/linear/linear_packed_body.h"
#if REPRISE_BULK_COPY
#include "kernels/linear/linear_stream_body.h"
#endif
#if REPRISE_GROUP_PRODUCTS
#include "kernels/linear/linear_cluster_body.h"
#include "kernels/linear/linear_group_body.h"
#include "kernels/linear/linear_group_scaled_body.h"
#endif
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

#if REPRISE_ON_GPU && !REPRISE_BULK_COPY
template <typename T, typename W, int kTokens, bool kFine = false>
REPRISE_FN void StreamLinearBody(const LinearArgs&, unsigned char*) {}
#endif
#if REPRISE_ON_GPU && !REPRISE_GROUP_PRODUCTS
template <typename T, int kTokens, typename W = T>
REPRISE_FN void GroupLinearBody(const LinearGroupArgs&, unsigned char*) {}
template <typename T, int kTokens>
REPRISE_FN void ClusterLinearBody(const LinearGroupArgs&, unsigned char*) {}
template <typename T, typename W, int kTokens>
REPRISE_FN void GroupScaledLinearBody(const LinearGroupArgs&, unsigned char*) {}
#endif

REPRISE_LINEAR_BLOCK_INSTANCES(REPRISE_DEFINE_INSTANCE)
REPRISE_LINEAR_ROUNDED_INSTANCES(REPRISE_DEFINE_INSTANCE)
REPRISE_LINEAR_CLUSTER_INSTANCES(REPRISE_DEFINE_CLUSTER_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
