// SPDX-License-Identifier: Apache-2.0
// `reprise serve --config`: a server that has its options from a file.
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Config : public ::testing::Test {
 protected:
  std::string File(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string Write(const std::string& text) const {
    std::ofstream(File("serve.toml")) << text;
    return File("serve.toml");
  }
  // What it prints of all options. A failure is recorded.
  static std::string Printed(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "serve");
    arguments.emplace_back("--print-config");
    Program program(arguments);
    EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
    return program.stdout_text();
  }
  TemporaryDirectory directory_;
};

TEST_F(Config, ServesAsItSaysAndTheCommandLineGoesFirst) {
  const std::string address = "unix:" + File("a.sock");
  const std::string config =
      Write("model = \"" + ShippedModel() + "\"\ndevice = \"host\"\nlisten = \"" + address +
            "\"\nmax-rows = 8\nlog-format = \"json\"\n");
  Program serve({"serve", "--config", config, "--log-format", "text", "--max-rows", "4"});
  ASSERT_TRUE(serve.AwaitOutput("serving on " + address));
  EXPECT_EQ(RunProgram({"health", "--address", address, "--wait", "30s"}), 0);
  EXPECT_THAT(serve.stdout_text(), HasSubstr("decode/4"));
  EXPECT_THAT(serve.stdout_text(), Not(HasSubstr("decode/8")));
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(), 0);
}

TEST_F(Config, WhatIsPrintedIsTheSameAgain) {
  const std::string printed =
      Printed({"--model", "/a model", "--listen", "unix:/a", "--listen", "127.0.0.1:0", "--poison",
               "--decode-buckets", "1,2,4", "--kv-cache", "1GiB"});
  for (const char* line :
       {"model = \"/a model\"\n", "listen = [\"unix:/a\", \"127.0.0.1:0\"]\n", "poison = true\n",
        "decode-buckets = \"1,2,4\"\n", "kv-cache = \"1GiB\"\n", "drain-timeout = \"10s\"\n"}) {
    EXPECT_THAT(printed, HasSubstr(line));
  }
  EXPECT_EQ(Printed({"--config", Write(printed)}), printed);
}

TEST_F(Config, IsRefusedByLineAndOption) {
  const std::string config = Write("model = \"a\"\n\nmax-rows = \"many\"\n");
  Program serve({"serve", "--config", config});
  EXPECT_EQ(serve.Wait(), 2);
  EXPECT_THAT(serve.stderr_text(),
              HasSubstr("reprise serve: " + config +
                        ":3: max-rows: got \"many\", allowed: a whole number from 1"));
  EXPECT_THAT(serve.stdout_text(), IsEmpty());
  Program missing({"serve", "--config", "/no/such.toml"});
  EXPECT_EQ(missing.Wait(), 1);
  EXPECT_THAT(missing.stderr_text(), HasSubstr("config: cannot read \"/no/such.toml\""));
}

}  // namespace
}  // namespace reprise::testing
