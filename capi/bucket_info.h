// SPDX-License-Identifier: Apache-2.0
// What reprise.h says of a captured bucket, of an engine or of a graph manager.
#ifndef REPRISE_CAPI_BUCKET_INFO_H_
#define REPRISE_CAPI_BUCKET_INFO_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "capi/reprise.h"
#include "graphs/bucket.h"

namespace reprise::capi {

// Errors: OutOfRange (index); those of WriteStruct.
absl::Status WriteBucket(std::span<const graphs::CapturedBucket> buckets, size_t index,
                         reprise_bucket_info* out);

}  // namespace reprise::capi

#endif  // REPRISE_CAPI_BUCKET_INFO_H_
