// SPDX-License-Identifier: Apache-2.0
// Files that a user names, read once from begin to end.
#include "tools/input_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;

TEST(ReadInputFile, GivesAllBytesUpToTheMost) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/bytes";
  std::string bytes(200'000, 'x');
  bytes[77] = '\0';
  std::ofstream(path, std::ios::binary) << bytes;
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadInputFile("", path, bytes.size()));
  EXPECT_EQ(read, bytes);
  EXPECT_THAT(ReadInputFile("trace: ", path, bytes.size() - 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "trace: " + path + ": got 200000 bytes, allowed: at most 199999"));
}

TEST(ReadInputFile, EndsWhereADeviceDoesNot) {
  EXPECT_THAT(ReadInputFile("", "/dev/zero", 1 << 20),
              StatusIs(absl::StatusCode::kInvalidArgument, "/dev/zero: got more than 1048576"));
  ASSERT_OK_AND_ASSIGN(const std::string nothing, ReadInputFile("", "/dev/null", 1));
  EXPECT_EQ(nothing, "");
}

TEST(ReadInputFile, OrStdinIsThatForADash) {
  const auto read = [](const std::string& text, size_t max_bytes) {
    std::istringstream stream(text);
    std::streambuf* const before = std::cin.rdbuf(stream.rdbuf());
    const auto bytes = ReadInputFileOrStdin("trace: ", "-", max_bytes);
    std::cin.rdbuf(before);
    std::cin.clear();
    return bytes;
  };
  ASSERT_OK_AND_ASSIGN(const std::string bytes, read("a\nb", 3));
  EXPECT_EQ(bytes, "a\nb");
  EXPECT_THAT(read("abcd", 3), StatusIs(absl::StatusCode::kInvalidArgument,
                                        "trace: stdin: got more than 3 bytes, allowed: at most 3"));
  EXPECT_THAT(ReadInputFileOrStdin("trace: ", "/no/such", 1),
              StatusIs(absl::StatusCode::kNotFound, "trace: cannot read \"/no/such\""));
}

TEST(ReadInputFile, NamesWhatIsNoFile) {
  EXPECT_THAT(ReadInputFile("trace: ", "/no/such", 1),
              StatusIs(absl::StatusCode::kNotFound, "trace: cannot read \"/no/such\""));
  EXPECT_THAT(ReadInputFile("", "/", 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "got a directory, allowed: a file"));
}

}  // namespace
}  // namespace reprise::tools
