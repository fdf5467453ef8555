// SPDX-License-Identifier: Apache-2.0
// What a recording keeps of contents that came into a session's blocks without passing through its
// client: they are read from the device as ReadBlocks reads them, and recorded as if the session
// had written them. Threads: the KV queue's alone, which may wait for the device. None of them
// throws; what goes wrong ends the recording, and costs the call nothing.
#ifndef REPRISE_SERVICE_KV_RECORDED_CONTENTS_H_
#define REPRISE_SERVICE_KV_RECORDED_CONTENTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "service/service_host.h"

namespace reprise::service {

// `blocks` have just been filled, with so many tokens each; at `at_ns` that began. REQUIRES: the
// session is recorded, and its PoolLock is held.
void RecordContents(const ServiceHost& host, const std::string& model, const ServedSession& session,
                    uint64_t at_ns, std::span<const uint32_t> blocks,
                    std::span<const uint32_t> num_tokens);

// `blocks` have just been adopted under `name`, and were not the session's to read before.
// REQUIRES: as above.
void RecordAdoption(const ServiceHost& host, const std::string& model, const ServedSession& session,
                    std::string_view name, std::span<const uint32_t> blocks);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_RECORDED_CONTENTS_H_
