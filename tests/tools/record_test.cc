// SPDX-License-Identifier: Apache-2.0
#include "tools/record.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"

namespace reprise::tools {
namespace {

using ::testing::HasSubstr;

TEST(Record, WritesJsonOrNamesTheFileItCannotWrite) {
  testing::TemporaryDirectory directory;
  Console console;
  EXPECT_TRUE(WriteRecord(directory.path() + "/a.json", {{"a", 1}}, &console).ok());
  EXPECT_TRUE(WriteRecord("", {{"a", 1}}, &console).ok());
  EXPECT_THAT(std::string(WriteRecord(directory.path() + "/b/a.json", {}, &console).message()),
              HasSubstr("/b/a.json\": No such file or directory"));
  EXPECT_THAT(std::string(WriteRecord("/dev/full", {{"a", 1}}, &console).message()),
              HasSubstr("No space left on device"));
}

// As much as the disk has room for is not left in its place.
TEST(Record, AFileThatCannotBeWrittenWholeStaysAsItWas) {
  testing::TemporaryDirectory directory;
  Console console;
  const std::string path = directory.path() + "/a.json";
  ASSERT_TRUE(WriteRecord(path, {{"a", 1}}, &console).ok());
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit least = {.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &least), 0);
  const absl::Status status = WriteRecord(path, {{"a", std::string(1000, 'x')}}, &console);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.json\": File too large"));
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file), nlohmann::json({{"a", 1}}));
  file.close();
  std::filesystem::remove(path);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

// Its owner alone may replace it in such a folder, whoever may write it.
TEST(Record, AFileThatMayNotBeReplacedIsWritten) {
  if (geteuid() != 0) GTEST_SKIP() << "needs two users";
  testing::TemporaryDirectory directory;
  Console console;
  const std::string path = directory.path() + "/a.json";
  ASSERT_TRUE(WriteRecord(path, {{"a", std::string(100, 'x')}}, &console).ok());
  ASSERT_EQ(chmod(directory.path().c_str(), 01777), 0);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ASSERT_EQ(seteuid(65534), 0);
  const absl::Status status = WriteRecord(path, {{"a", 2}}, &console);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_TRUE(status.ok()) << status;
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file), nlohmann::json({{"a", 2}}));
  file.close();
  std::filesystem::remove(path);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Record, LinesAreThereAsSoonAsTheyAreWritten) {
  testing::TemporaryDirectory directory;
  Console console;
  const std::string path = directory.path() + "/a.jsonl";
  auto lines = RecordLines::Open(path, &console);
  ASSERT_TRUE(lines.ok()) << lines.status();
  const auto text = [&path] {
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  };
  lines->Write({{"a", 1}});
  EXPECT_EQ(text(), "{\"a\":1}\n");
  lines->Write({{"a", "x\ny"}});
  EXPECT_TRUE(lines->Close().ok());
  EXPECT_EQ(text(), "{\"a\":1}\n{\"a\":\"x\\ny\"}\n");
}

TEST(Record, LinesThatCannotBeWrittenAreAnError) {
  Console console;
  EXPECT_THAT(std::string(RecordLines::Open("/no/such/a", &console).status().message()),
              HasSubstr("cannot write \"/no/such/a\": No such file or directory"));
  auto full = RecordLines::Open("/dev/full", &console);
  ASSERT_TRUE(full.ok());
  full->Write(1);
  full->Write(2);
  EXPECT_THAT(std::string(full->Close().message()), HasSubstr("No space left on device"));
  auto none = RecordLines::Open("", &console);
  ASSERT_TRUE(none.ok());
  none->Write(1);
  EXPECT_TRUE(none->Close().ok());
}

TEST(Record, NumbersOfAListStandOnOneLine) {
  testing::TemporaryDirectory directory;
  Console console;
  const std::string path = directory.path() + "/a.json";
  const nlohmann::json json = {{"a", {{1, 2.5}, {3}}},
                               {"b", {{{"c", nullptr}}}},
                               {"d", {"x"}},
                               {"e", nlohmann::json::array()}};
  ASSERT_TRUE(WriteRecord(path, json, &console).ok());
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text,
            "{\n  \"a\": [\n    [1,2.5],\n    [3]\n  ],\n  \"b\": [\n    {\n      \"c\": null\n    "
            "}\n  ],\n  \"d\": [\n    \"x\"\n  ],\n  \"e\": []\n}\n");
  EXPECT_EQ(nlohmann::json::parse(text), json);
}

TEST(Record, LooksWhetherAFileCanBeWrittenAndLeavesItAsItWas) {
  testing::TemporaryDirectory directory;
  Console console;
  const std::string path = directory.path() + "/a.json";
  EXPECT_TRUE(PrepareRecord(path, &console).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(WriteRecord(path, {{"a", 1}}, &console).ok());
  const auto size = std::filesystem::file_size(path);
  EXPECT_TRUE(PrepareRecord(path, &console).ok());
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_THAT(std::string(PrepareRecord(directory.path() + "/b/a.json", &console).message()),
              HasSubstr("/b/a.json\": No such file or directory"));
}

TEST(Record, TakesArgumentsThatAreNoText) {
  testing::TemporaryDirectory directory;
  Console console;
  const std::string path = directory.path() + "/a.json";
  const Invocation invocation{.console = &console, .argv = {"reprise", "\xFF"}, .commit = ""};
  const nlohmann::json record = RecordOf("run", invocation);
  EXPECT_EQ(record["commit"], nullptr);
  ASSERT_TRUE(WriteRecord(path, record, &console).ok());
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file)["argv"][1], "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace reprise::tools
