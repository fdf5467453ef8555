// SPDX-License-Identifier: Apache-2.0
// ReplayedIds: numbers that a replay was given, by those of the recording: of blocks, of places in
// swap space, or of states there. One thread.
#ifndef REPRISE_TOOLS_REPLAY_REPLAYED_IDS_H_
#define REPRISE_TOOLS_REPLAY_REPLAYED_IDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/repeated_field.h"

namespace reprise::tools {

class ReplayedIds {
 public:
  using Recorded = google::protobuf::RepeatedField<uint32_t>;

  // What one of them is and how the recording comes by it, for messages: "block", "allocated".
  ReplayedIds(const char* what, const char* done) : what_(what), done_(done) {}

  // `got`: as many as there are of `recorded`.
  void Add(const Recorded& recorded, const std::vector<uint32_t>& got) {
    for (size_t i = 0; i < got.size(); ++i) ids_[recorded[static_cast<int>(i)]] = got[i];
  }
  void Remove(const Recorded& recorded) {
    for (const uint32_t id : recorded) ids_.erase(id);
  }
  std::optional<uint32_t> Find(uint32_t recorded) const {
    const auto found = ids_.find(recorded);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  // Errors: DataLoss where the recording has not come by one.
  absl::Status Map(Recorded* ids) const {
    for (uint32_t& id : *ids) {
      const std::optional<uint32_t> found = Find(id);
      if (!found) return Unknown(id);
      id = *found;
    }
    return absl::OkStatus();
  }
  absl::Status Unknown(uint32_t recorded) const {
    return absl::DataLossError(
        absl::StrCat("the recording names ", what_, " ", recorded, ", which it has not ", done_));
  }

 private:
  const char* const what_;
  const char* const done_;
  std::map<uint32_t, uint32_t> ids_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_REPLAYED_IDS_H_
