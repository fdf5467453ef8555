// SPDX-License-Identifier: Apache-2.0
// Memory of a device that processes share: what one writes another reads, as long as the one that
// made it lives.
#include "runtime/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "runtime/host/host_shared_memory.h"
#include "runtime/memory/shared_buffer.h"
#include "tests/runtime/hip_fake_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;

constexpr size_t kBytes = 100000;

class HostShared : public ::testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = *Device::Create({});
};

TEST_F(HostShared, IsReadByAnotherProcess) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  // The child is a process of its own that shares nothing but what it opens: it is started before
  // there is anything to share.
  const pid_t child = fork();
  if (child == 0) {
    char handle[64] = {};
    HostSharedMemory memory;
    bool ok = read(to_child[0], handle, sizeof(handle)) > 0;
    const auto data = memory.Open(handle, kBytes);
    ok = ok && data.ok() && std::strcmp(static_cast<const char*>(*data) + 70000, "there") == 0;
    ok = ok && write(to_parent[1], "s", 1) == 1;
    _exit(ok ? 0 : 1);
  }
  const auto buffer = SharedBuffer::Create(*device_, kBytes);
  ASSERT_OK(buffer);
  std::strcpy(reinterpret_cast<char*>(buffer->data()) + 70000, "there");
  ASSERT_GT(write(to_child[1], buffer->handle().c_str(), buffer->handle().size()), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(end);
}

TEST_F(HostShared, IsGoneWithTheOneThatMadeIt) {
  std::string handle;
  {
    const auto buffer = SharedBuffer::Create(*device_, kBytes);
    ASSERT_OK(buffer);
    handle = buffer->handle();
    const auto opened = OpenedBuffer::Open(*device_, handle, kBytes);
    ASSERT_OK(opened);
  }
  EXPECT_THAT(OpenedBuffer::Open(*device_, handle, kBytes),
              StatusIs(absl::StatusCode::kFailedPrecondition, "that still runs"));
}

TEST_F(HostShared, IsNotWhatAHandleOfSomethingElseNames) {
  const auto buffer = SharedBuffer::Create(*device_, kBytes);
  ASSERT_OK(buffer);
  FILE* file = tmpfile();
  ASSERT_NE(file, nullptr);
  const std::string of_a_file =
      "memfd " + std::to_string(getpid()) + " " + std::to_string(fileno(file));
  for (const std::string& handle :
       {std::string(), std::string("memfd"), std::string("memfd 1 2 3"), std::string("memfd x y"),
        std::string("memfd 4000000000 1"), std::string(64, '\xff'), of_a_file}) {
    EXPECT_THAT(OpenedBuffer::Open(*device_, handle, 1),
                StatusIs(absl::StatusCode::kFailedPrecondition, "shared memory of another process"))
        << handle;
  }
  EXPECT_THAT(OpenedBuffer::Open(*device_, buffer->handle(), kBytes + 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, "of the"));
  fclose(file);
}

TEST_F(HostShared, IsRefusedWhereThereIsNoRoom) {
  EXPECT_THAT(SharedBuffer::Create(*device_, size_t{1} << 50),
              StatusIs(absl::StatusCode::kResourceExhausted, "asked"));
  EXPECT_THAT(SharedBuffer::Create(*device_, 0), StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

class HipShared : public HipFakeTest {};
REPRISE_ON_EVERY_HIP_RELEASE(HipShared);

TEST_P(HipShared, IsOpenedByItsHandleWhereTheLibraryHasSuchCalls) {
  MakeStream();
  auto buffer = SharedBuffer::Create(*device_, kBytes);
  if (GetParam() != testing::FakeHipRelease::kCurrent) {
    EXPECT_THAT(buffer, StatusIs(absl::StatusCode::kUnimplemented, "memory that processes share"));
    return;
  }
  ASSERT_OK(buffer);
  EXPECT_EQ(buffer->handle().size(), 64u);
  {
    const auto opened = OpenedBuffer::Open(*device_, buffer->handle(), kBytes);
    ASSERT_OK(opened);
    EXPECT_EQ(opened->data(), buffer->data());
  }
  EXPECT_THAT(OpenedBuffer::Open(*device_, "short", 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, "of 5 bytes"));
  EXPECT_FALSE(OpenedBuffer::Open(*device_, std::string(64, 'x'), 1).ok());
}

}  // namespace
}  // namespace reprise::runtime
