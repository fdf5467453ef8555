// SPDX-License-Identifier: Apache-2.0
// What Describe answers: the engine's account of itself to reprise.v1.DescribeResponse. Threads: a
// free function without state.
#ifndef REPRISE_SERVICE_WIRE_DESCRIBE_TO_WIRE_H_
#define REPRISE_SERVICE_WIRE_DESCRIBE_TO_WIRE_H_

#include <cstdint>

#include "engine/engine_info.h"
#include "graphs/bucket.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::service {

void DescribeToWire(const engine::EngineInfo& info, const engine::PoolInfo& pool,
                    const engine::GraphsInfo& graphs, const engine::AttentionTreeInfo& tree,
                    uint64_t max_message_bytes, v1::DescribeResponse* wire);
void BucketToWire(const graphs::CapturedBucket& captured, const char* kind, v1::Bucket* wire);
// All buckets, of either kind.
void BucketsToWire(const engine::GraphsInfo& graphs,
                   google::protobuf::RepeatedPtrField<v1::Bucket>* wire);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_DESCRIBE_TO_WIRE_H_
