// SPDX-License-Identifier: Apache-2.0
// What is recorded, and where to: see recorder.h.
#ifndef REPRISE_SERVICE_RECORD_RECORD_OPTIONS_H_
#define REPRISE_SERVICE_RECORD_RECORD_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "models/model_source.h"

namespace reprise::service {

struct RecordOptions {
  std::string directory = {};                // of the files; made where it is missing
  uint64_t limit_bytes = uint64_t{1} << 30;  // of all recordings in it, those of before included
  models::ModelSource source = {};           // that the engine is of
  // Records that wait to be written: a tenth of a second at 40,000 requests a second.
  size_t max_waiting = 4096;
  uint64_t max_waiting_bytes = uint64_t{64} << 20;
  uint64_t write_interval_ms = 20;
  // How often the directory is measured again, since others remove files from it. Less often where
  // that would take more than a hundredth of the recorder's time.
  uint64_t measure_interval_ms = 1000;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_RECORD_OPTIONS_H_
