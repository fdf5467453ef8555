// SPDX-License-Identifier: Apache-2.0
#include "engine/state/swap_table.h"

#include "absl/strings/str_cat.h"

namespace reprise::engine {

SwapTable::SwapTable(uint32_t num_places, const Words& words)
    : words_(words), holder_(num_places, 0), num_tokens_(num_places, 0), stamps_(num_places, 0) {
  free_.reserve(num_places);
  for (uint32_t place = num_places; place-- > 0;) free_.push_back(place);
}

absl::Status SwapTable::Allocate(Holder holder, std::span<const uint32_t> num_tokens,
                                 std::vector<uint32_t>* places) {
  if (num_tokens.size() > free_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("asked for ", words_.space, " for ", num_tokens.size(), " ", words_.many,
                     "; it has room for ", free_.size(), " of ", num_places()));
  }
  places->reserve(places->size() + num_tokens.size());
  for (const uint32_t tokens : num_tokens) {
    const uint32_t place = free_.back();
    free_.pop_back();
    holder_[place] = holder;
    num_tokens_[place] = tokens;
    places->push_back(place);
  }
  return absl::OkStatus();
}

absl::Status SwapTable::CheckHeld(Holder holder, std::span<const uint32_t> places) {
  if (places.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("names 0 ", words_.place, "s; allowed: at least 1"));
  ++stamp_;
  for (const uint32_t place : places) {
    if (place >= num_places()) {
      return absl::OutOfRangeError(absl::StrCat(
          words_.place, " ", place, " does not exist; allowed: less than ", num_places()));
    }
    if (holder_[place] != holder) {
      return absl::PermissionDeniedError(
          absl::StrCat(words_.place, " ", place, " is not this session's"));
    }
    if (stamps_[place] == stamp_)
      return absl::InvalidArgumentError(absl::StrCat(words_.place, " ", place, " is named twice"));
    stamps_[place] = stamp_;
  }
  return absl::OkStatus();
}

void SwapTable::Free(std::span<const uint32_t> places) {
  for (const uint32_t place : places) {
    holder_[place] = 0;
    free_.push_back(place);
  }
}

void SwapTable::List(Holder holder, std::vector<uint32_t>* places) const {
  for (uint32_t place = 0; place < num_places(); ++place)
    if (holder_[place] == holder) places->push_back(place);
}

void SwapTable::FreeAll(Holder holder) {
  for (uint32_t place = 0; place < num_places(); ++place) {
    if (holder_[place] == holder) Free({&place, 1});
  }
}

}  // namespace reprise::engine
