// SPDX-License-Identifier: Apache-2.0
// What the program says of its own command line: completion, asked of the shells that there are,
// and the manual page, as man shows it.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

bool Has(const std::string& tool) {
  return std::system(("command -v " + tool + " > /dev/null 2>&1").c_str()) == 0;
}

// What a shell command prints, errors too. Not to succeed is a failure.
std::string Shell(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), pipe))
    text.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

class Completion : public ::testing::Test {
 protected:
  // The file with what `reprise <arguments>` prints.
  std::string Printed(const std::vector<std::string>& arguments) const {
    Program program(arguments);
    EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
    std::ofstream(File("printed")) << program.stdout_text();
    return File("printed");
  }
  std::string File(const std::string& name) const { return directory_.path() + "/" + name; }
  TemporaryDirectory directory_;
};

// Sources the script, and presses Tab behind the last of `words`.
std::vector<std::string> AskBash(const std::string& script, const std::vector<std::string>& words,
                                 const std::string& directory) {
  const std::string file = directory + "/ask.bash";
  // compopt is for completion that a terminal asks for.
  std::ofstream(file)
      << "compopt() { :; }\nsource " << script << "\ncomplete -p reprise > /dev/null\n"
      << "cd " << directory << "\nCOMP_WORDS=('" << absl::StrJoin(words, "' '")
      << "')\nCOMP_CWORD=" << words.size() - 1
      << "\n_reprise\n((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"\n:\n";
  return absl::StrSplit(Shell("bash " + file), '\n', absl::SkipEmpty());
}

TEST_F(Completion, OfBashKnowsCommandsOptionsAndValues) {
  if (!Has("bash")) GTEST_SKIP() << "there is no bash";
  const std::string script = Printed({"completion", "bash"});
  const auto ask = [&](const std::vector<std::string>& words) {
    return AskBash(script, words, directory_.path());
  };
  EXPECT_THAT(ask({"reprise", "se"}), UnorderedElementsAre("serve", "sessions"));
  EXPECT_THAT(ask({"reprise", "help", "se"}), UnorderedElementsAre("serve", "sessions"));
  EXPECT_THAT(ask({"reprise", "serve", "--lis"}), ElementsAre("--listen"));
  EXPECT_THAT(ask({"reprise", "bench", "att"}), ElementsAre("attention"));
  EXPECT_THAT(ask({"reprise", "bench", "attention", "--rou"}), ElementsAre("--rounds"));
  EXPECT_THAT(ask({"reprise", "serve", "--log-format", ""}), UnorderedElementsAre("text", "json"));
  EXPECT_THAT(ask({"reprise", "serve", "--log-format", "=", "j"}), ElementsAre("json"));
  EXPECT_THAT(ask({"reprise", "completion", "b"}), ElementsAre("bash"));
  // A value that may be anything.
  EXPECT_THAT(ask({"reprise", "serve", "--listen", ""}), IsEmpty());
  std::ofstream(File("a file")) << "";
  EXPECT_THAT(ask({"reprise", "report", "a"}), Contains("a file"));
  EXPECT_THAT(ask({"reprise", "run", "--json", "a"}), Contains("a file"));
  EXPECT_THAT(ask({"reprise", "profile", "--recorded", "a"}), Contains("a file"));
  EXPECT_THAT(ask({"reprise", "run", "--poison", "a"}), Not(Contains("a file")));
}

TEST_F(Completion, OfBashIsAScriptWithoutFault) {
  if (!Has("shellcheck")) GTEST_SKIP() << "there is no shellcheck";
  EXPECT_THAT(Shell("shellcheck --shell=bash " + Printed({"completion", "bash"})), IsEmpty());
}

TEST_F(Completion, OfZshIsAScript) {
  if (!Has("zsh")) GTEST_SKIP() << "there is no zsh";
  EXPECT_THAT(Shell("zsh -n " + Printed({"completion", "zsh"})), IsEmpty());
}

TEST_F(Completion, OfFishKnowsCommandsOptionsAndValues) {
  if (!Has("fish")) GTEST_SKIP() << "there is no fish";
  const std::string script = Printed({"completion", "fish"});
  const auto ask = [&](const std::string& line) {
    return Shell(absl::StrCat("HOME=", directory_.path(), " fish -c 'source ", script,
                              "; complete -C \"", line, "\"'"));
  };
  EXPECT_THAT(ask("reprise ser"), HasSubstr("serve\tServe a model"));
  EXPECT_THAT(ask("reprise serve --lis"), HasSubstr("--listen\t"));
  EXPECT_THAT(ask("reprise serve --log-format "), HasSubstr("json"));
  EXPECT_THAT(ask("reprise bench at"), HasSubstr("attention"));
}

TEST_F(Completion, IsRefusedForOtherShells) {
  Program program({"completion", "tcsh"});
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_THAT(program.stderr_text(), HasSubstr("got \"tcsh\", allowed: bash, zsh, fish"));
}

TEST_F(Completion, TheManualPageHasEveryCommandAndOption) {
  const std::string page = ReadTextFile(Printed({"man"}));
  for (const char* words : {"\n.SH REPRISE SERVE\n", "\n.SH REPRISE BENCH ATTENTION\n",
                            "\\fB\\-\\-drain\\-timeout\\fR TIME=10s", "\n.SS Server\n",
                            "\nreprise serve \\-\\-config serve.toml\n"}) {
    EXPECT_THAT(page, HasSubstr(words));
  }
}

TEST_F(Completion, TheManualPageIsWithoutFault) {
  const std::string page = Printed({"man"});
  if (Has("mandoc")) {
    // A date would be another one whenever the same program prints it.
    EXPECT_THAT(Shell("mandoc -T lint -W warning " + page + " | sed '/missing date/d'"), IsEmpty());
  } else if (Has("groff")) {
    EXPECT_THAT(Shell("groff -man -ww -z -T utf8 " + page), IsEmpty());
  } else {
    GTEST_SKIP() << "there is neither mandoc nor groff";
  }
}

TEST_F(Completion, ManShowsTheManualPage) {
  if (!Has("man")) GTEST_SKIP() << "there is no man";
  const std::string text = Shell("MANWIDTH=80 MANPAGER=cat man -l " + Printed({"man"}));
  EXPECT_THAT(text, HasSubstr("graph-replay runtime for LLM decode serving"));
  EXPECT_THAT(text, HasSubstr("--drain-timeout TIME=10s"));
}

}  // namespace
}  // namespace reprise::testing
