// SPDX-License-Identifier: Apache-2.0
// What a person sees: every command on a terminal, of 80 columns and of 24.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/screen.h"

namespace reprise::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kPermission[] = "Everyone is permitted to copy and distribute verbatim copies";
constexpr char kText[] =
    "Everyone is permitted to copy and distribute verbatim copies\n"
    " of this license document, but changing it is not allowed.\n";

TEST(Screen, ShowsWhatIsLeftOfWhatWasDrawnOver) {
  EXPECT_THAT(ShownOn(80, "ab\r\ncd\rX").lines, ElementsAre("ab", "Xd"));
  EXPECT_THAT(ShownOn(80, "text\r\x1b[K[#.] 1/2\r\x1b[Kmore").lines, ElementsAre("more"));
  EXPECT_THAT(ShownOn(80, "a\x1b[31m").unknown, Not(IsEmpty()));
}

TEST(Screen, BreaksLinesAtItsEdge) {
  const Screen screen = ShownOn(4, "abcd\r\nabcdef\r\n\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9");
  EXPECT_THAT(screen.lines, ElementsAre("abcd", "abcd", "ef", "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"));
  EXPECT_EQ(screen.num_overflows, 1u);
  EXPECT_THAT(screen.unbroken_text(), HasSubstr("abcd\nabcdef\n"));
}

// By columns.
class Terminal : public ::testing::TestWithParam<int> {
 protected:
  // Runs to the end; a failure is recorded.
  Screen Show(const std::vector<std::string>& arguments) {
    Program program(arguments, {.terminal_columns = GetParam()});
    EXPECT_EQ(program.Wait(std::chrono::seconds(120)), 0) << program.terminal().output();
    output_ = program.terminal().output();
    Screen screen = program.terminal().screen();
    EXPECT_THAT(screen.unknown, IsEmpty());
    return screen;
  }
  std::string output_;
};

INSTANTIATE_TEST_SUITE_P(Columns, Terminal, ::testing::Values(80, 24));

TEST_P(Terminal, RunShowsTheTextOfItsPrompt) {
  const Screen screen = Show({"run", "--model", ShippedModel(), "--device", "host", "--prompt",
                              kPermission, "--max-new-tokens", "60"});
  EXPECT_THAT(screen.unbroken_text(), HasSubstr(kText));
  EXPECT_THAT(screen.unbroken_text(), Not(HasSubstr("done,")));
}

TEST_P(Terminal, SchedShowsTheTextOfItsPrompt) {
  ServedProgram served(ShippedModel());
  ASSERT_TRUE(served.ready());
  const Screen screen = Show(
      {"sched", "--address", served.address(), "--prompt", kPermission, "--max-new-tokens", "60"});
  EXPECT_THAT(screen.unbroken_text(), HasSubstr(kText));
  EXPECT_THAT(screen.unbroken_text(), Not(HasSubstr("done,")));
}

TEST_P(Terminal, TextOfSeveralPromptsAndTablesFit) {
  const Screen screen =
      Show({"run", "--model", ShippedModel(), "--device", "host", "--prompt", kPermission,
            "--prompt", "You may copy and distribute", "--max-new-tokens", "200", "--logprobs", "2",
            "--bandwidth", "10GB/s"});
  EXPECT_EQ(screen.num_overflows, 0u) << screen.text();
  EXPECT_THAT(screen.text(), HasSubstr("[  1] > Everyone"));
  EXPECT_THAT(screen.text(), HasSubstr("[  2]   "));
  for (const char* word : {"finished", "preempted", "TTFT", "ITL", "floor", "mixed/", "padding in",
                           "validate", "device", "100.0 %"}) {
    EXPECT_THAT(screen.text(), HasSubstr(word));
  }
  // A progress line was there, and went.
  EXPECT_THAT(output_, HasSubstr("/2 done"));
  EXPECT_THAT(screen.text(), Not(HasSubstr("/2 done")));
}

TEST_P(Terminal, ProfileFits) {
  const Screen screen =
      Show({"profile", "--model", ShippedModel(), "--device", "host", "--rows", "1,2", "--contexts",
            "16", "--iterations", "4", "--warmup", "0", "--bandwidth-bytes", "1MiB"});
  EXPECT_EQ(screen.num_overflows, 0u) << screen.text();
  for (const char* word :
       {"bandwidth", "net per layer", "skew", "launch p50", "SM clock", "KV written", "in all"}) {
    EXPECT_THAT(screen.text(), HasSubstr(word));
  }
}

TEST_P(Terminal, BenchFits) {
  const Screen screen =
      Show({"bench",        "attention", "--device",      "host", "--heads",   "4",
            "--kv-heads",   "2",         "--head-dim",    "16",   "--rows",    "1,2",
            "--contexts",   "16",        "--max-context", "64",   "--replays", "2",
            "--pool-bytes", "16KiB",     "--sustain",     "0.01"});
  EXPECT_EQ(screen.num_overflows, 0u) << screen.text();
  for (const char* word : {"page walk", "of floor", "KV read", "sustained us", "power"})
    EXPECT_THAT(screen.text(), HasSubstr(word));
}

TEST_P(Terminal, TuneFits) {
  TemporaryDirectory directory;
  const Screen screen = Show({"tune",          "attention",
                              "--device",      "host",
                              "--heads",       "4",
                              "--kv-heads",    "2",
                              "--head-dim",    "16",
                              "--max-rows",    "2",
                              "--max-context", "64",
                              "--replays",     "1",
                              "--pool-bytes",  "16KiB",
                              "--budget",      "1",
                              "--out",         directory.path() + "/t"});
  for (const char* word : {"fitted on", "regret", "measured:", "written:"})
    EXPECT_THAT(screen.text(), HasSubstr(word));
}

// All of it but shell words that are longer than the terminal is wide.
TEST_P(Terminal, HelpFits) {
  for (const std::string command :
       {"", "serve", "sched", "run", "health", "sessions", "tree", "profile", "bench",
        "bench attention", "tune", "tune attention", "tune linear", "completion", "man"}) {
    const std::vector<std::string> arguments =
        absl::StrSplit(command.empty() ? "help" : "help " + command, ' ');
    const Screen screen = Show(arguments);
    EXPECT_THAT(screen.text(), HasSubstr("Examples:"));
    if (GetParam() == 80) {
      EXPECT_EQ(screen.num_overflows, 0u) << screen.text();
    }
    for (size_t i = 0; i < screen.lines.size(); ++i) {
      if (!screen.continues[i]) continue;
      const std::string line = screen.lines[i];
      const size_t word = line.find_first_not_of(' ');
      const bool quoted = line.find('"') != std::string::npos;
      EXPECT_TRUE(quoted || line.find(' ', word) == std::string::npos) << line;
    }
  }
}

TEST_P(Terminal, ServeFits) {
  TemporaryDirectory directory;
  const std::string address = "unix:" + directory.path() + "/a.sock";
  Program serve({"serve", "--model", ShippedModel(), "--device", "host", "--listen", address},
                {.terminal_columns = GetParam()});
  ASSERT_TRUE(serve.AwaitOutput(address));
  serve.terminal().Type("\x03");
  EXPECT_EQ(serve.Wait(), 0);
  const Screen screen = serve.terminal().screen();
  // The socket's path may be longer than the terminal is wide.
  EXPECT_LE(screen.num_overflows, address.size() / static_cast<size_t>(GetParam()))
      << screen.text();
  for (const char* word : {"model", "start-up", "driver bytes", "mixed/1024", "serving on"}) {
    EXPECT_THAT(screen.text(), HasSubstr(word));
  }
}

}  // namespace
}  // namespace reprise::testing
