// SPDX-License-Identifier: Apache-2.0
// Files for targets whose code reads by path. Threads: one at a time.
#ifndef REPRISE_TESTS_FUZZ_FUZZ_FILES_H_
#define REPRISE_TESTS_FUZZ_FUZZ_FILES_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/testing/tiny_model.h"

namespace reprise::fuzz {

// The bytes of the file at `path`, which is there.
std::string BytesOfFile(const std::string& path);
// The same of a file of this repository.
std::string FileText(const std::string& path);

// A file in memory alone.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const;

 private:
  const int fd_;
};

// A directory of this user's alone whose files are written again and again, for what reads several
// of one name each.
class FuzzDirectory {
 public:
  // files: names and bytes of those that stay.
  explicit FuzzDirectory(const std::vector<std::pair<std::string, std::string>>& files = {});
  std::string path(std::string_view name) const;
  const std::string& path() const { return directory_.path(); }
  void Write(std::string_view name, std::string_view bytes) const;

 private:
  const testing::TemporaryDirectory directory_;
};

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_FUZZ_FILES_H_
