// SPDX-License-Identifier: Apache-2.0
// Opening and reading regular files, with errors that name the path. For model directories only:
// nothing here writes, and nothing follows a path into a device, a pipe or a directory.
#ifndef REPRISE_MODELS_WEIGHTS_FILE_INPUT_H_
#define REPRISE_MODELS_WEIGHTS_FILE_INPUT_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace reprise::models {

// An open descriptor of a regular file, closed on destruction.
class InputFile {
 public:
  // Never blocks. Errors: NotFound, PermissionDenied; InvalidArgument when it is not a regular
  // file.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  int descriptor() const { return descriptor_; }
  size_t bytes() const { return bytes_; }  // its size when it was opened

 private:
  InputFile(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {}
  int descriptor_;
  size_t bytes_;
};

// Errors: those of InputFile::Open; InvalidArgument above `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_FILE_INPUT_H_
