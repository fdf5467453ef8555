// SPDX-License-Identifier: Apache-2.0
// The journal of a tuning run, and files that are written whole or not at all.
#include "tools/tune/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"
#include "tools/atomic_file.h"

namespace reprise::tools {
namespace {

using ::nlohmann::json;
using ::reprise::testing::StatusIs;
using ::reprise::testing::TemporaryDirectory;
using ::testing::EndsWith;
using ::testing::HasSubstr;

json Header() {
  return {{"schema", kJournalSchema},
          {"device", {{"name", "a"}}},
          {"commit", nullptr},
          {"options", {{"seed", 1}, {"shares", {50, 100}}}}};
}

JournalEntry Entry(const std::string& cell, int choice, double ns) {
  return {.cell = {{"name", cell}, {"rows", 8}},
          .choice = {{"rows", choice}},
          .ns = ns,
          .replays = 5,
          .spread = 0,
          .seconds = 0.25};
}

class JournalTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name = "a.jsonl") const {
    return directory_.path() + "/" + name;
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  // As a run leaves it that measured two choices in one cell.
  void Begin() const {
    ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(Path(), Header()));
    ASSERT_OK(journal->Append({{Entry("x", 1, 1000.5), Entry("x", 2, 2000)}}));
  }
  TemporaryDirectory directory_;
};

TEST_F(JournalTest, GivesBackWhatAnEarlierRunWrote) {
  Begin();
  ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(Path(), Header()));
  EXPECT_EQ(journal->num_entries(), 2u);
  const JournalEntry* const found = journal->Find(Entry("x", 1, 0).cell, Entry("x", 1, 0).choice);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->ns, 1000.5);
  EXPECT_EQ(found->replays, 5u);
  EXPECT_EQ(found->spread, 0.0);
  EXPECT_EQ(found->seconds, 0.25);
  EXPECT_EQ(journal->Find(Entry("y", 1, 0).cell, Entry("x", 1, 0).choice), nullptr);
  EXPECT_EQ(journal->Find(Entry("x", 1, 0).cell, Entry("x", 3, 0).choice), nullptr);
}

TEST_F(JournalTest, GoesOnBehindWhatThereIsAndTheLastEntryCounts) {
  Begin();
  {
    ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(Path(), Header()));
    ASSERT_OK(journal->Append({{Entry("x", 1, 7), Entry("y", 1, 8)}}));
  }
  ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(Path(), Header()));
  EXPECT_EQ(journal->num_entries(), 3u);
  EXPECT_EQ(journal->Find(Entry("x", 1, 0).cell, Entry("x", 1, 0).choice)->ns, 7);
}

TEST_F(JournalTest, WithoutAFileKeepsEntriesInMemory) {
  ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open("", Header()));
  ASSERT_OK(journal->Append({{Entry("x", 1, 1)}}));
  EXPECT_EQ(journal->num_entries(), 1u);
  EXPECT_EQ(journal->path(), "");
}

TEST_F(JournalTest, DropsALastLineThatWasNotWrittenToItsEnd) {
  Begin();
  const std::string whole = Read(Path());
  for (size_t cut = 1; cut <= 40; cut += 13) {
    Write(Path(), whole.substr(0, whole.size() - cut));
    {
      ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(Path(), Header()));
      EXPECT_EQ(journal->num_entries(), 1u);
      ASSERT_OK(journal->Append({{Entry("x", 2, 2000)}}));
    }
    EXPECT_EQ(Read(Path()), whole);
  }
}

TEST_F(JournalTest, BeginsAnewWhereNotEvenTheHeaderIsWhole) {
  Begin();
  const std::string header = Read(Path()).substr(0, Read(Path()).find('\n') + 1);
  for (const size_t length : {size_t{0}, size_t{5}, header.size() - 1}) {
    Write(Path(), header.substr(0, length));
    ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(Path(), Header()));
    EXPECT_EQ(Read(Path()), header);
  }
}

TEST_F(JournalTest, RefusesOneOfAnotherRunAndSaysWhatDiffers) {
  Begin();
  json other = Header();
  other["device"]["name"] = "b";
  other["options"]["seed"] = 2;
  other["commit"] = "c0ffee";
  const auto refused = Journal::Open(Path(), other);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition, "was begun by another run"));
  for (const char* part :
       {"device.name: \"a\", got \"b\"", "options.seed: 1, got 2", "commit: null, got \"c0ffee\""})
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(part));
  other = Header();
  other["options"]["shares"] = {50};
  other["options"]["more"] = true;
  EXPECT_THAT(Journal::Open(Path(), other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "options.shares.1: 100, got none; options.more: none, got true"));
}

TEST_F(JournalTest, RefusesWhatIsNoJournal) {
  Write(Path(), "hello\n");
  EXPECT_THAT(Journal::Open(Path(), Header()),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 1"));
  Write(Path(), "hello");
  EXPECT_THAT(Journal::Open(Path(), Header()),
              StatusIs(absl::StatusCode::kInvalidArgument, "is none"));
  EXPECT_EQ(Read(Path()), "hello");
  Write(Path(), "dear diary\nno end");
  EXPECT_THAT(Journal::Open(Path(), Header()),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 1"));
  EXPECT_EQ(Read(Path()), "dear diary\nno end");
  std::filesystem::remove(Path());
  Begin();
  Write(Path("b"), Read(Path()) + "{\"cell\": 1}\n");
  EXPECT_THAT(Journal::Open(Path("b"), Header()),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 4: cell: got 1"));
  EXPECT_THAT(Journal::Open(Path("no/such"), Header()),
              StatusIs(absl::StatusCode::kUnavailable, "No such file or directory"));
  EXPECT_THAT(Journal::Open(directory_.path(), Header()),
              StatusIs(absl::StatusCode::kUnavailable, "Is a directory"));
}

TEST_F(JournalTest, IsOfOneProcessAtATime) {
  ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(Path(), Header()));
  EXPECT_THAT(Journal::Open(Path(), Header()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "is open in another process"));
}

TEST_F(JournalTest, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  EXPECT_FALSE(Journal::Open("/dev/full", Header()).ok());
}

TEST_F(JournalTest, FilesAreWrittenWholeOrNotAtAll) {
  ASSERT_OK(CheckWritable(Path("tree"), 1 << 16));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  ASSERT_OK(WriteAtomically(Path("tree"), "first"));
  ASSERT_OK(WriteAtomically(Path("tree"), "second"));
  EXPECT_EQ(Read(Path("tree")), "second");
  ASSERT_OK(CheckWritable(Path("tree"), 1 << 16));
  EXPECT_EQ(Read(Path("tree")), "second");
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
    EXPECT_THAT(entry.path().string(), EndsWith("/tree"));
  std::filesystem::permissions(
      Path("tree"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink("tree", Path("link"));
  ASSERT_OK(WriteAtomically(Path("link"), "third"));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("tree")), "third");
  EXPECT_EQ(static_cast<int>(std::filesystem::status(Path("tree")).permissions()), 0600);
  EXPECT_THAT(CheckWritable(Path("no/such"), 1),
              StatusIs(absl::StatusCode::kUnavailable, "No such file or directory"));
  EXPECT_THAT(WriteAtomically(directory_.path(), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, "got a directory"));
}

TEST_F(JournalTest, PipesAreWrittenTo) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const int reader = open(Path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_OK(CheckWritable(Path("pipe"), 1));
  ASSERT_OK(WriteAtomically(Path("pipe"), "text"));
  char got[8] = {};
  EXPECT_EQ(read(reader, got, sizeof(got)), 4);
  EXPECT_STREQ(got, "text");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

}  // namespace
}  // namespace reprise::tools
