// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <ios>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace reprise::fuzz {

std::string BytesOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REPRISE_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string FileText(const std::string& path) {
  return BytesOfFile(absl::StrCat(REPRISE_SOURCE_DIR, "/", path));
}

MemoryFile::MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  REPRISE_CHECK(fd_ >= 0);
  REPRISE_CHECK(::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

MemoryFile::~MemoryFile() { ::close(fd_); }

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

FuzzDirectory::FuzzDirectory(const std::vector<std::pair<std::string, std::string>>& files) {
  for (const auto& [name, bytes] : files) Write(name, bytes);
}

std::string FuzzDirectory::path(std::string_view name) const {
  return absl::StrCat(directory_.path(), "/", std::string(name));
}

void FuzzDirectory::Write(std::string_view name, std::string_view bytes) const {
  std::ofstream file(path(name), std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  REPRISE_CHECK(file.good());
}

}  // namespace reprise::fuzz
