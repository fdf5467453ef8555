// SPDX-License-Identifier: Apache-2.0
// The kernels of paged attention. Compiled once per target.
#include "kernels/attention/attention_merge_body.h"
#include "kernels/attention/attention_naive_body.h"
#include "kernels/attention/attention_portable_body.h"
#include "kernels/attention/instances.h"
#include "kernels/device/define_instances.h"
#if REPRISE_ON_GPU
#include "kernels/attention/attention_matrix_body.h"
#if REPRISE_BULK_COPY
#include "kernels/attention/decode_bulk_body.h"
#endif
#if REPRISE_GROUP_PRODUCTS
#include "kernels/attention/attention_prefill_group_body.h"
#endif
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

#if REPRISE_ON_GPU && !REPRISE_BULK_COPY
template <typename T, int kHeadSize, bool kTiles, typename K = T>
REPRISE_FN void AttentionDecodeBulkBody(const AttentionArgs&, unsigned char*) {}
#endif
#if REPRISE_ON_GPU && !REPRISE_GROUP_PRODUCTS
template <typename T, int kHeadSize>
REPRISE_FN void AttentionPrefillGroupBody(const AttentionArgs&, unsigned char*) {}
#endif

REPRISE_ATTENTION_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
