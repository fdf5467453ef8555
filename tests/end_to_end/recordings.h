// SPDX-License-Identifier: Apache-2.0
// Recordings of `reprise serve --record` as tests find and change them.
#ifndef REPRISE_TESTS_END_TO_END_RECORDINGS_H_
#define REPRISE_TESTS_END_TO_END_RECORDINGS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "service/record/record_format.h"

namespace reprise::testing {

// Of a directory, in the order in which their sessions began.
inline std::vector<std::string> RecordingsIn(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// The file, each record changed so.
inline void RewriteRecording(const std::string& path,
                             const std::function<void(v1::SessionRecord*)>& change) {
  const auto recording = service::ReadRecording(path);
  ASSERT_TRUE(recording.ok()) << recording.status();
  std::string bytes = service::RecordFirstLine();
  v1::SessionRecord header;
  *header.mutable_header() = recording->header;
  change(&header);
  service::AppendFramed(header.SerializeAsString(), &bytes);
  for (v1::SessionRecord call : recording->calls) {
    change(&call);
    service::AppendFramed(call.SerializeAsString(), &bytes);
  }
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_END_TO_END_RECORDINGS_H_
