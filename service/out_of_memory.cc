// SPDX-License-Identifier: Apache-2.0
#include "service/out_of_memory.h"

namespace reprise::service {
namespace {

const absl::Status& kOutOfMemory =
    *new absl::Status(absl::ResourceExhaustedError("the server is out of memory"));

}  // namespace

const absl::Status& OutOfMemory() { return kOutOfMemory; }

}  // namespace reprise::service
