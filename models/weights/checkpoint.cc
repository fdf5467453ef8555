// SPDX-License-Identifier: Apache-2.0
// The tensors of a model directory; see checkpoint.h.
#include "models/weights/checkpoint.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{256} << 20;

// Shard file -> the tensors that the index promises in it.
using ShardMap = std::map<std::string, std::vector<std::string>>;

// A shard lies beside its index: a plain name, so that an index can't reach into other folders.
bool IsPlainFileName(const std::string& name) {
  const bool plain = std::none_of(name.begin(), name.end(),
                                  [](unsigned char c) { return c == '/' || c == '\\' || c < ' '; });
  return plain && name[0] != '.' && absl::EndsWith(name, ".safetensors");
}

absl::StatusOr<ShardMap> ParseIndex(const std::string& text) {
  REPRISE_ASSIGN_OR_RETURN(const Json index, ParseJsonObject(text, kIndexFile));
  const JsonFields fields(index, absl::StrCat(kIndexFile, ": "));
  const Json* weight_map = fields.Find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object() || weight_map->empty()) {
    return fields.Refuse("weight_map", "an object of tensor names and their files");
  }
  ShardMap shards;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(kIndexFile, ": weight_map of ", ShowJson(tensor), ": got ", ShowJson(file),
                       ", allowed a file name ending in .safetensors, without a path"));
    }
    shards[file.get<std::string>()].push_back(tensor);
  }
  return shards;
}

// Every promised tensor is there, and no other. `promised` is sorted, as JSON objects are kept.
absl::Status CheckShard(const SafetensorsFile& file, const std::vector<std::string>& promised) {
  for (const std::string& name : promised) {
    if (!file.tensors().contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": lacks tensor ", ShowJson(name),
                                                     ", which ", kIndexFile, " places there"));
    }
  }
  if (promised.size() == file.tensors().size()) return absl::OkStatus();
  for (const auto& [name, view] : file.tensors()) {
    if (!std::binary_search(promised.begin(), promised.end(), name)) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": got tensor ", ShowJson(name),
                                                     ", allowed only those that ", kIndexFile,
                                                     " places there"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& directory) {
  auto checkpoint = std::unique_ptr<Checkpoint>(new Checkpoint());
  // A directory that has both forms is read as transformers reads it: the single file wins.
  auto single = SafetensorsFile::Open(absl::StrCat(directory, "/", kSingleFile));
  if (single.ok()) {
    checkpoint->files_.push_back(*std::move(single));
  } else if (!absl::IsNotFound(single.status())) {
    return single.status();
  } else {
    const auto text = ReadFile(absl::StrCat(directory, "/", kIndexFile), kMaxIndexBytes);
    if (absl::IsNotFound(text.status())) {
      return absl::NotFoundError(absl::StrCat(directory, ": got neither ", kSingleFile, " nor ",
                                              kIndexFile, ", allowed one of them"));
    }
    REPRISE_RETURN_IF_ERROR(text.status());
    REPRISE_ASSIGN_OR_RETURN(const ShardMap shards, ParseIndex(*text));
    for (const auto& [name, promised] : shards) {
      REPRISE_ASSIGN_OR_RETURN(auto file,
                               SafetensorsFile::Open(absl::StrCat(directory, "/", name)));
      REPRISE_RETURN_IF_ERROR(CheckShard(*file, promised));
      checkpoint->files_.push_back(std::move(file));
    }
  }
  for (const auto& file : checkpoint->files_) {
    for (const auto& [name, view] : file->tensors()) checkpoint->tensors_.emplace(name, &view);
  }
  return checkpoint;
}

std::unique_ptr<Checkpoint> Checkpoint::Of(
    absl::flat_hash_map<std::string, const TensorView*> tensors) {
  auto checkpoint = std::unique_ptr<Checkpoint>(new Checkpoint());
  checkpoint->tensors_ = std::move(tensors);
  return checkpoint;
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto it = tensors_.find(absl::string_view(name.data(), name.size()));
  return it == tensors_.end() ? nullptr : it->second;
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace reprise::models
