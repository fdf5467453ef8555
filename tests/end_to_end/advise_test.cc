// SPDX-License-Identifier: Apache-2.0
// `reprise advise` as users run it: over what a server recorded and over numbers, with a profile,
// and verified on the host.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class AdviseProgram : public BenchProgramTest {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  // The recordings of three requests that run together.
  std::vector<std::string> Recorded() const {
    {
      ServedProgram served(model_, {"--record", File("recordings"), "--max-rows", "8"});
      EXPECT_TRUE(served.ready());
      EXPECT_EQ(RunProgram({"sched", "--address", served.address(), "--prompt-tokens", "5,6,7",
                            "--requests", "3", "--max-new-tokens", "9", "--ignore-eos"}),
                0);
      served.program().Signal(SIGTERM);
      EXPECT_EQ(served.program().Wait(), 0);
    }
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(File("recordings")))
      files.push_back(entry.path());
    return files;
  }
  std::string Trace(const std::string& text) const {
    std::ofstream(File("steps.csv")) << text;
    return File("steps.csv");
  }
  json Written() const { return json::parse(ReadTextFile(File("advice.json"))); }
  // One line on stderr, and no file.
  void Refused(std::vector<std::string> arguments, int code, const char* message) const {
    arguments.insert(arguments.begin(), "advise");
    Program program(arguments);
    EXPECT_EQ(program.Wait(), code) << message;
    EXPECT_THAT(program.stderr_text(), HasSubstr(message));
  }
  std::string model_;
};

TEST_F(AdviseProgram, ChoosesForWhatAServerRecordedAndVerifiesIt) {
  std::vector<std::string> arguments = {"advise",   "--verify", "--model",  model_,
                                        "--device", "host",     "--rounds", "2",
                                        "--steps",  "6",        "--json",   File("advice.json")};
  const std::vector<std::string> files = Recorded();
  ASSERT_THAT(files, SizeIs(1));
  arguments.insert(arguments.begin() + 1, files[0]);
  Program program(arguments);
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  const json advice = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("advise"), advice), IsEmpty());
  EXPECT_EQ(advice["sets"][0]["decode"], json({1, 2, 4, 8}));
  // Three rows decode together, so that a bucket of three pads nothing.
  EXPECT_THAT(advice["sets"][2]["decode"], ::testing::Contains(3));
  EXPECT_LT(advice["sets"][2]["cost_per_step"], advice["sets"][0]["cost_per_step"]);
  EXPECT_GT(advice["trace"]["mean_context"], 3);
  const std::string flags = advice["flags"];
  EXPECT_THAT(program.stdout_text(), HasSubstr("\n" + flags + "\n"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("\nadvised against powers of two: "));
  EXPECT_THAT(program.stdout_text(), HasSubstr("6 steps of the trace's sizes on "));
  EXPECT_THAT(program.stdout_text(), HasSubstr("\nadvised against powers of two: device "));
  ASSERT_TRUE(advice["verified"].is_object());
  EXPECT_EQ(advice["verified"]["steps"], 6);
  for (const char* set : {"current", "powers_of_two", "advised"})
    EXPECT_THAT(advice["verified"][set]["device_us"], SizeIs(2)) << set;
}

// Its mixed steps have more tokens than a row may, so that several prompts have them.
TEST_F(AdviseProgram, ChoosesForNumbersByAProfile) {
  ASSERT_EQ(
      RunProgram({"profile", "--model", model_, "--device", "host", "--rows", "1,4,8", "--contexts",
                  "16,32", "--iterations", "2", "--warmup", "0", "--bandwidth-bytes", "1MiB",
                  "--max-rows", "8", "--json", File("profile.json")}),
      0);
  const std::string trace = Trace("rows,tokens,context,steps\n3,3,20,50\n7,7,30,5\n2,9,,4\n");
  Program program({"advise", trace, "--profile", File("profile.json"), "--kind", "decode",
                   "--max-graphs", "6", "--json", File("advice.json")});
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  const json advice = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("advise"), advice), IsEmpty());
  EXPECT_EQ(advice["cost"]["unit"], "ns");
  EXPECT_EQ(advice["trace"]["decode_steps"], 55);
  EXPECT_EQ(advice["sets"][0]["decode"], json({1, 2, 4, 8}));
  EXPECT_EQ(advice["verified"], nullptr);
  Refused({trace, "--profile", File("profile.json")}, 1,
          "mixed steps: got sizes from 9 to 9, allowed: 1 to 8");
  Refused({trace, "--profile", trace}, 1, "steps.csv");
}

TEST_F(AdviseProgram, SetsTheBucketsOfAServersConfiguration) {
  const std::string trace = Trace("rows,tokens,context,steps\n3,3,20,50\n2,9,,4\n");
  const std::string config = File("serve.toml");
  std::ofstream(config) << "model = \"" << model_ << "\"\ndevice = \"host\"\nmax-rows = 8 # few\n";
  Program program({"advise", trace, "--decode-buckets", "1,8", "--mixed-buckets", "16",
                   "--max-graphs", "4", "--serve-config", config, "--json", File("advice.json")});
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  EXPECT_THAT(program.stderr_text(), HasSubstr("serve.toml has the advised buckets"));
  EXPECT_THAT(ReadTextFile(config), HasSubstr("max-rows = 8 # few\n"));
  // The server understands the file, and would capture these.
  Program serve({"serve", "--config", config, "--print-config"});
  EXPECT_EQ(serve.Wait(), 0) << serve.stderr_text();
  const json advice = Written();
  std::string decode;
  for (const json& set : advice["sets"]) {
    if (set["name"] != "advised") continue;
    for (const json& rows : set["decode"]) decode += (decode.empty() ? "" : ",") + rows.dump();
  }
  EXPECT_THAT(decode, HasSubstr("3"));
  EXPECT_THAT(serve.stdout_text(), HasSubstr("decode-buckets = \"" + decode + "\""));
  // The file's rows are the server's, where nothing else says how many it has.
  Program again({"advise", trace, "--mixed-buckets", "16", "--serve-config", config});
  EXPECT_EQ(again.Wait(), 0) << again.stderr_text();
  EXPECT_THAT(ReadTextFile(config), HasSubstr("decode-buckets = \"3,8\"\n"));
  // Without any, and beyond serve's default, the largest bucket's.
  const std::string made = File("new.toml");
  Program many(
      {"advise", trace, "--max-rows", "512", "--mixed-buckets", "16", "--serve-config", made});
  EXPECT_EQ(many.Wait(), 0) << many.stderr_text();
  EXPECT_THAT(ReadTextFile(made), HasSubstr("max-rows = "));
  Program serve_many({"serve", "--config", made, "--print-config"});
  EXPECT_EQ(serve_many.Wait(), 0) << serve_many.stderr_text();
  EXPECT_THAT(serve_many.stdout_text(), HasSubstr("max-rows = 512\n"));
  std::ofstream(File("bad.toml")) << "[serve]\n";
  Refused({trace, "--serve-config", File("bad.toml")}, 2, "bad.toml:1: got the section [serve]");
  Refused({trace, "--serve-config", "-"}, 2, "--serve-config: got \"-\", allowed: a file");
  Refused({trace, "--serve-config", ""}, 2, "--serve-config");
  Refused({trace, "--serve-config", "/no/such/folder/a.toml"}, 1, "/no/such/folder/a.toml");
}

TEST_F(AdviseProgram, WritesNoConfigurationThatServeRefuses) {
  const std::string trace = Trace("rows,tokens,context,steps\n3,3,20,50\n2,9,,4\n");
  const std::string config = File("serve.toml");
  const auto refused = [&](const std::string& text, const std::vector<std::string>& buckets,
                           int code, const std::string& says) {
    std::ofstream(config, std::ios::trunc) << text;
    std::vector<std::string> arguments = {"advise", trace, "--serve-config", config, "--json", "-"};
    arguments.insert(arguments.end(), {"--decode-buckets", buckets[0]});
    arguments.insert(arguments.end(), {"--mixed-buckets", buckets[1]});
    Program program(arguments);
    EXPECT_EQ(program.Wait(), code) << text;
    EXPECT_THAT(program.stderr_text(), HasSubstr("reprise advise: " + config + says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
    EXPECT_EQ(ReadTextFile(config), text) << "stays as it was";
  };
  // Serve says the same of such a file.
  const std::string few = "model = \"" + model_ + "\"\nmax-rows = 4\ndecode-buckets = \"1,8\"\n";
  std::ofstream(config) << few;
  Program serve({"serve", "--config", config, "--listen", "unix:" + File("a.sock")});
  EXPECT_EQ(serve.Wait(), 1);
  EXPECT_THAT(serve.stderr_text(), HasSubstr("decode bucket is 8; allowed: 1 to 4"));
  refused(few, {"1,8", "16"}, 1,
          ": decode-buckets: decode bucket is 8; allowed: 1 to 4, which is its max-rows");
  refused("max-rows = 8\n", {"8", "100000"}, 1,
          ": mixed-buckets: mixed bucket is 100000; allowed: 1 to 65536");
  // What can be known before anything is read: there is no such trace.
  std::filesystem::remove(trace);
  const std::vector<std::string> any = {"1,8", "16"};
  refused("max-row = 8\n", any, 2, ":1: unknown key \"max-row\"; did you mean \"max-rows\"?");
  refused("max-rows = 0\n", any, 2, ":1: max-rows: got \"0\", allowed: ");
}

// As `advise recordings/*.record` meets it after a server was killed, and `advise <(zcat ...)`.
TEST_F(AdviseProgram, ReadsPipesAndSkipsARecordingWithoutAHeader) {
  const std::string empty = File("empty.record"), pipe = File("pipe");
  std::ofstream(empty).close();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "rows,tokens\n3,3\n2,9\n"; });
  Program program({"advise", empty, pipe, "--mixed-buckets", "16", "--json", File("advice.json")});
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  // Lets a writer go whom nobody has read.
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  writer.join();
  ::close(reader);
  EXPECT_THAT(program.stderr_text(),
              HasSubstr("reprise advise: " + empty + ": got an empty file, allowed: a recording"));
  const json advice = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("advise"), advice), IsEmpty());
  EXPECT_EQ(advice["trace"]["decode_steps"], 1);
  EXPECT_EQ(advice["trace"]["mixed_steps"], 1);
  EXPECT_EQ(advice["trace"]["skipped"], json::array({empty}));
  Refused({empty}, 1, "got no step, allowed: CSV or lines of JSON");
  // A pipe is empty where the command that feeds it has failed.
  const std::string trace = Trace("rows,tokens\n3,3\n");
  Refused({trace, "/dev/null", "--mixed-buckets", "16"}, 1, "/dev/null: got no step");
}

TEST_F(AdviseProgram, AppliesItToARunningServer) {
  const std::string trace = Trace("rows,tokens,context,steps\n3,3,20,50\n2,9,,4\n");
  ServedProgram served(model_, {"--allow-administration", "--max-rows", "8"});
  ASSERT_TRUE(served.ready());
  const std::vector<std::string> arguments = {
      "advise", trace,     "--address", served.address(),   "--max-graphs",
      "6",      "--apply", "--json",    File("advice.json")};
  Program program(arguments);
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  const json advice = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("advise"), advice), IsEmpty());
  EXPECT_EQ(advice["sets"][0]["decode"], json({1, 2, 4, 8})) << "the server's own";
  EXPECT_EQ(advice["applied"]["version"], 2);
  EXPECT_GT(advice["applied"]["capture_ns"], 0);
  EXPECT_THAT(program.stdout_text(), HasSubstr("applied: " + served.address() + " has "));
  EXPECT_THAT(program.stdout_text(), HasSubstr("version 2 of its buckets\n"));
  // Three requests that run together replay what was advised.
  EXPECT_EQ(
      RunProgram({"sched", "--address", served.address(), "--prompt-tokens", "5,6,7", "--requests",
                  "3", "--max-new-tokens", "9", "--ignore-eos", "--json", File("sched.json")}),
      0);
  EXPECT_THAT(ReadTextFile(File("sched.json")), HasSubstr("\"decode/3\""));
  // It has them now, so that there is nothing to do.
  Program again(arguments);
  EXPECT_EQ(again.Wait(), 0) << again.stderr_text();
  EXPECT_THAT(again.stdout_text(), HasSubstr(" has these buckets already\n"));
  EXPECT_EQ(Written()["sets"][0]["decode"], advice["sets"].back()["decode"]);
  EXPECT_EQ(Written()["applied"]["version"], 2);
  EXPECT_EQ(Written()["applied"]["capture_ns"], 0);
  // Its largest mixed bucket is 1024, which clients count on.
  Refused({trace, "--address", served.address(), "--mixed-buckets", "16", "--apply"}, 1,
          "SetBuckets: the largest mixed bucket is 16; allowed: 1024");
}

TEST_F(AdviseProgram, SaysWhyItCannotBeApplied) {
  const std::string trace = Trace("rows,tokens,context,steps\n3,3,20,50\n2,9,,4\n");
  Refused({trace, "--apply"}, 2, "--apply: got no --address, allowed: beside it");
  Refused({trace, "--token-file", "a"}, 2, "--token-file: got no --address, allowed: beside it");
  Refused({trace, "--address", "nowhere"}, 2, "--address");
  Refused({trace, "--address", "unix:" + File("none.sock")}, 1, "none.sock");
  ServedProgram served(model_, {"--max-rows", "8"});
  ASSERT_TRUE(served.ready());
  Refused({trace, "--address", served.address(), "--apply"}, 1,
          "SetBuckets: buckets: this server has no administrators");
}

TEST_F(AdviseProgram, SaysWhatIsWrong) {
  const std::string trace = Trace("rows\n3\n");
  Refused({}, 2, "FILE");
  Refused({trace, "--kind", "all"}, 2, "--kind: got \"all\", allowed: both, decode, mixed");
  Refused({trace, "--max-graphs", "0"}, 2, "--max-graphs: got \"0\", allowed: ");
  Refused({trace, "--verify"}, 2, "model: got none");
  Refused({trace, "--steps", "9"}, 2, "--steps: got no --verify, allowed: beside it");
  Refused({trace, "--memory", "1MiB"}, 2, "--graph-bytes SIZE");
  Refused({trace, "--memory", "1MiB", "--graph-bytes", "2MiB"}, 1,
          "allowed: at least 1 of 2097152 bytes");
  Refused({trace, "--json", "/no/such/folder/a.json"}, 1, "/no/such/folder/a.json");
  Refused({File("none")}, 1, "cannot read");
  Refused({trace, "--mixed-buckets", "8", "--max-graphs", "1"}, 1,
          "graphs: got at most 1 (--max-graphs), allowed: at least 2, for the largest");
  Refused({Trace("rows,tokens\n2,9\n")}, 1, "mixed buckets: got none");
  Refused({Trace("rows\n7\n"), "--decode-buckets", "4"}, 1,
          "decode buckets: got 4 as the largest, and the trace has decode steps of 7 rows");
  Refused({Trace("rows,tokens\n2,1\n")}, 1, "tokens: got 1, allowed: 2 or more");
  Refused({Trace("rows\n300\n"), "--verify", "--model", model_, "--mixed-buckets", "512",
           "--device", "host"},
          1, "rows: got 300, allowed: 1 to 256");
}

}  // namespace
}  // namespace reprise::testing
