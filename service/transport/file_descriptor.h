// SPDX-License-Identifier: Apache-2.0
// FileDescriptor: owns one of the system's file descriptors and closes it.
#ifndef REPRISE_SERVICE_TRANSPORT_FILE_DESCRIPTOR_H_
#define REPRISE_SERVICE_TRANSPORT_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace reprise::service {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes over `fd`; -1: none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~FileDescriptor() { Reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_FILE_DESCRIPTOR_H_
