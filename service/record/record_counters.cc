// SPDX-License-Identifier: Apache-2.0
#include "service/record/record_counters.h"

namespace reprise::service {

const char* NameOf(RecordLoss loss) {
  switch (loss) {
    case RecordLoss::kLimit:
      return "limit";
    case RecordLoss::kWriteFailed:
      return "write_failed";
    case RecordLoss::kOverflow:
      return "overflow";
    case RecordLoss::kOutOfMemory:
      return "out_of_memory";
    case RecordLoss::kKvCall:
      return "kv_call";
  }
  return "";
}

v1::RecordEndReason EndReasonOf(RecordLoss loss) {
  switch (loss) {
    case RecordLoss::kLimit:
      return v1::RECORD_END_REASON_LIMIT;
    case RecordLoss::kWriteFailed:
      return v1::RECORD_END_REASON_WRITE_FAILED;
    case RecordLoss::kOverflow:
      return v1::RECORD_END_REASON_OVERFLOW;
    case RecordLoss::kOutOfMemory:
      return v1::RECORD_END_REASON_OUT_OF_MEMORY;
    case RecordLoss::kKvCall:
      return v1::RECORD_END_REASON_KV_CALL;
  }
  return v1::RECORD_END_REASON_UNSPECIFIED;
}

}  // namespace reprise::service
