// SPDX-License-Identifier: Apache-2.0
// Which model it is, as far as KV blocks go: two servers with equal fingerprints may hand each
// other contents of blocks (docs/kv.md). Threads: free functions without state.
#ifndef REPRISE_SERVICE_KV_MODEL_FINGERPRINT_H_
#define REPRISE_SERVICE_KV_MODEL_FINGERPRINT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "models/model_source.h"

namespace reprise::service {

// 32 bytes, SHA-256. Of a directory: over config.json and, of every tensor in the order of names,
// the name, shape, type and up to three samples of 4 KiB: its begin, middle and end. How tensors
// are spread over files does not count, nor does hf_quant_config.json: tensors show what it says.
// Of a preset: over its name and seed. With longrope also over which of its factors turn keys in an
// engine of such a max_context_length (0: the model's limit). Errors: those of reading both.
absl::StatusOr<std::string> ModelFingerprint(const models::ModelSource& source,
                                             uint32_t max_context_length = 0);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_MODEL_FINGERPRINT_H_
