// SPDX-License-Identifier: Apache-2.0
// The page of `reprise profile --html`, and the other forms of a profile: written by the program,
// and the page drawn by a browser where there is one.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class PageProgram : public BenchProgramTest {
 protected:
  // A profile, which is written in the forms of `more` too.
  json Measured(const std::vector<std::string>& more = {}) {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    EXPECT_TRUE(model.ok()) << model.status();
    std::vector<std::string> arguments = {
        "profile", "--model",         *model,  "--device",
        "host",    "--block-size",    "4",     "--rows",
        "1,2",     "--contexts",      "40,80", "--max-rows",
        "8",       "--mixed-buckets", "16",    "--iterations",
        "30",      "--warmup",        "2",     "--bandwidth-bytes",
        "1MiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunBench(arguments);
  }
};

TEST_F(PageProgram, WritesEveryFormWhileItMeasuresAndAfterwards) {
  const std::vector<std::string> forms = {
      "--html", File("a.html"), "--trace",    File("a.trace.json"),
      "--csv",  File("a.csv"),  "--markdown", File("a.md")};
  const json profile = Measured(forms);
  EXPECT_THAT(ReadTextFile(File("a.html")), HasSubstr(profile["date"].get<std::string>()));
  EXPECT_EQ(json::parse(ReadTextFile(File("a.trace.json")))["traceEvents"].size(),
            4u * (5 + profile["points"][0]["timeline"]["op"].size()));
  EXPECT_THAT(ReadTextFile(File("a.csv")), HasSubstr("\n2@80,2,80,publish,reprise_publish,1,"));
  EXPECT_THAT(ReadTextFile(File("a.md")), HasSubstr("### Kernels of 2@80\n"));
  std::vector<std::string> before;
  for (size_t i = 1; i < forms.size(); i += 2) before.push_back(ReadTextFile(forms[i]));
  std::vector<std::string> again = {"report", File("bench.json")};
  again.insert(again.end(), forms.begin(), forms.end());
  EXPECT_EQ(RunProgram(again), 0);
  for (size_t i = 1; i < forms.size(); i += 2) EXPECT_EQ(ReadTextFile(forms[i]), before[i / 2]);
  Program to_stdout({"report", File("bench.json"), "--markdown", "-"});
  EXPECT_EQ(to_stdout.Wait(), 0);
  EXPECT_EQ(to_stdout.stdout_text(), before[3]);
}

TEST_F(PageProgram, RefusesWhatItCannotWriteOrRead) {
  std::ofstream(File("bench.json")) << Measured().dump();
  std::ofstream(File("other.json")) << R"({"schema": "reprise.bench_step/1"})";
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {{}, 2, "PROFILE is required"},
      {{File("bench.json")}, 2, "got no form, allowed: --html, --trace, --csv or --markdown"},
      {{File("bench.json"), "--csv", "-", "--markdown", "-"},
       2,
       "--markdown: got \"-\", and so does --csv, allowed: one of them"},
      {{File("bench.json"), "--csv", File("bench.json")},
       2,
       "bench.json\", which is read (PROFILE), allowed: another file"},
      {{File("bench.json"), "--html", "/no/such/dir/a.html"}, 1, "cannot write"},
      {{"/no/such/file", "--csv", "-"}, 1, "/no/such/file"},
      {{File("other.json"), "--csv", "-"},
       1,
       "other.json: schema: got \"reprise.bench_step/1\", allowed: \"reprise.profile/1\""},
  };
  for (const Refusal& refusal : refusals) {
    std::vector<std::string> arguments = {"report"};
    arguments.insert(arguments.end(), refusal.arguments.begin(), refusal.arguments.end());
    Program program(arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

std::string BrowserPath() {
  for (const char* name :
       {"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}) {
    if (std::system(absl::StrCat("command -v ", name, " > /dev/null 2>&1").c_str()) == 0)
      return name;
  }
  return "";
}

// What a browser made of the page, as HTML, and what its scripts complained of.
std::string Drawn(const std::string& browser, const std::string& page, const std::string& home) {
  const std::string command = absl::StrCat(
      "HOME='", home, "' timeout 60 ", browser,
      " --headless --no-sandbox --disable-gpu --enable-logging=stderr --dump-dom 'file://", page,
      "' 2>&1");
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> part;
  for (size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), n);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text.substr(0, 2000);
  return text;
}

TEST_F(PageProgram, IsDrawnByABrowser) {
  const std::string browser = BrowserPath();
  if (browser.empty()) GTEST_SKIP() << "no browser: chromium-headless-shell is not installed";
  const json profile = Measured({"--html", File("a.html")});
  const std::string drawn = Drawn(browser, File("a.html"), directory_.path());
  EXPECT_THAT(drawn, Not(HasSubstr("Uncaught")));
  EXPECT_THAT(drawn, HasSubstr("<h1 id=\"title\">Steps of "));
  EXPECT_THAT(drawn, ContainsRegex("data-theme=\"(light|dark)\""));
  // Latency, bandwidth, histogram; the kernels by net time; the points of the choice.
  for (const char* label :
       {"aria-label=\"replay p50 over rows\"", "aria-label=\"Read bandwidth by kernel\"",
        "aria-label=\"Histogram of replay\"", "aria-sort=\"descending\"", ">2@80</button>",
        "<td>reprise_publish</td>"})
    EXPECT_THAT(drawn, HasSubstr(label));
}

// A file of before samples and timelines were kept is shown as far as it goes.
TEST_F(PageProgram, AnOldProfileIsDrawnToo) {
  const std::string browser = BrowserPath();
  if (browser.empty()) GTEST_SKIP() << "no browser: chromium-headless-shell is not installed";
  json profile = Measured();
  for (json& point : profile["points"]) {
    for (const char* name : {"samples_ns", "timeline", "spread", "round_replay_us"})
      point.erase(name);
    for (json& op : point["ops"]) {
      op.erase("read_bytes");
      op.erase("samples_ns");
    }
    for (const char* name : {"replay_us", "device_us", "launch_us"})
      point["plain"][name].erase("p99_9");
  }
  for (const char* name : {"argv", "date", "host", "commit", "assertions"}) profile.erase(name);
  std::ofstream(File("old.json")) << profile.dump();
  EXPECT_EQ(RunProgram({"report", File("old.json"), "--html", File("old.html")}), 0);
  const std::string drawn = Drawn(browser, File("old.html"), directory_.path());
  EXPECT_THAT(drawn, Not(HasSubstr("Uncaught")));
  EXPECT_THAT(drawn, HasSubstr("This file keeps no samples."));
  EXPECT_THAT(drawn, HasSubstr("<td>reprise_publish</td>"));
}

}  // namespace
}  // namespace reprise::testing
