// SPDX-License-Identifier: Apache-2.0
// A profile's JSON in other forms, and what is refused of a file that is none.
#include "tools/profile/profile_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"

namespace reprise::tools {
namespace {

using ::nlohmann::json;
using ::reprise::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

json Times(double us) { return {{"mean", us}, {"p50", us}, {"p90", us}, {"p99", us}}; }

json TailOf(double us) {
  json times = Times(us);
  times["p99_9"] = 2.5 * us;
  return times;
}

json Op(const char* op, const char* shape, double us) {
  json json = {{"op", op},
               {"kernel", "reprise_kernel"},
               {"shape", nullptr},
               {"calls", 1},
               {"net_us", us},
               {"share", 0.5},
               {"stamped_us", Times(us)},
               {"net_per_call_us", us}};
  if (shape != nullptr) json["shape"] = shape;
  return json;
}

json Profile() {
  return {
      {"schema", "reprise.profile/1"},
      {"engine",
       {{"model", {{"name", "tiny </script> model"}}},
        {"device", {{"name", "a GPU"}, {"kind", "cuda"}}}}},
      {"bandwidth", {{"read_bytes_per_s", {{"best", 1e12}}}}},
      {"points",
       {{{"rows", 8},
         {"context", 512},
         {"graph", "decode/8"},
         {"padding_rows", 0},
         {"plain", {{"replay_us", TailOf(100)}, {"device_us", Times(90)}, {"launch_us", Times(5)}}},
         {"twin", {{"skew", 0.2}}},
         {"bytes", {{"kv_read", 1 << 20}, {"total", 1 << 24}}},
         {"bytes_per_s", 5e11},
         {"share_of_read_bandwidth", 0.5},
         {"clock", json::object()},
         {"ops", {Op("norm, of rows", nullptr, 10), Op("linear", "8x4", 20)}},
         {"timeline", {{"op", {0, 1, 0}}, {"stamped_us", {5.5, 20.25, 6}}}}}}}};
}

TEST(ProfileFile, PageHoldsTheFiguresAndLoadsNothing) {
  const std::string page = ProfilePage(Profile());
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  EXPECT_THAT(page, HasSubstr("\"context\":512"));
  EXPECT_THAT(page, HasSubstr("tiny \\u003c/script> model"));  // no tag ends there
  EXPECT_THAT(page, Not(HasSubstr("{{profile}}")));
  // The only address is the name of a language of elements.
  std::string rest = page;
  const std::string name = "'http://www.w3.org/2000/svg'";
  rest.erase(rest.find(name), name.size());
  for (const char* word : {"http:", "https:", "src=", "@import", "url(", "fetch(", "XMLHttp"})
    EXPECT_THAT(rest, Not(HasSubstr(word)));
}

TEST(ProfileFile, TraceShowsEveryLaunchInTime) {
  const json events = json::parse(ProfileTrace(Profile()))["traceEvents"];
  ASSERT_EQ(events.size(), 3u + 2u + 3u);
  EXPECT_EQ(events[0]["args"]["name"], "8@512");
  EXPECT_EQ(events[3]["name"], "replay");
  EXPECT_EQ(events[3]["dur"], 100);
  const json& last = events[7];
  EXPECT_EQ(last["ph"], "X");
  EXPECT_EQ(last["name"], "norm, of rows");
  EXPECT_EQ(last["ts"], 25.75);
  EXPECT_EQ(last["dur"], 6);
  EXPECT_EQ(events[6]["name"], "linear 8x4");
}

TEST(ProfileFile, CsvHasALineForEveryTimeAndKernel) {
  EXPECT_EQ(ProfileCsv(Profile()),
            "point,rows,context,of,kernel,calls,mean_us,p50_us,p90_us,p99_us,p99_9_us,max_us,"
            "net_us,share,traced_us,exposed_us,gap_us\n"
            "8@512,8,512,replay,,,100.0,100.0,100.0,100.0,250.0,,,,,,\n"
            "8@512,8,512,device,,,90.0,90.0,90.0,90.0,,,,,,,\n"
            "8@512,8,512,launch,,,5.0,5.0,5.0,5.0,,,,,,,\n"
            "8@512,8,512,\"norm, of rows\",reprise_kernel,1,10.0,10.0,10.0,10.0,,,10.0,0.5,,,\n"
            "8@512,8,512,linear 8x4,reprise_kernel,1,20.0,20.0,20.0,20.0,,,20.0,0.5,,,\n");
}

TEST(ProfileFile, MarkdownHasTables) {
  const std::string text = ProfileMarkdown(Profile());
  EXPECT_THAT(text, HasSubstr("|---|---:|---:|"));
  EXPECT_THAT(
      text,
      HasSubstr("| 8@512 | decode/8 | 100 us | 100 us | 100 us | 250 us | 5.00 us | 90.0 us | "
                "500.00 GB/s | 50.0 % |\n"));
  EXPECT_THAT(text, HasSubstr("### Kernels of 8@512\n"));
  EXPECT_THAT(text, HasSubstr("| linear 8x4 | 1 | 20.0 us | 20.0 us | 50.0 % | 20.0 us |\n"));
}

// The same, whose kernels were traced.
json TracedProfile() {
  json profile = Profile();
  json& point = profile["points"][0];
  point["traced"] = {
      {"skew", 0.1}, {"span_us", Times(60)}, {"gap_us", Times(1)}, {"overlap_us", Times(3)}};
  for (json& op : point["ops"])
    op["traced"] = {{"duration_us", 9.0}, {"exposed_us", 8.0}, {"gap_us", 0.5}};
  point["timeline"]["traced_begin_us"] = {0, 4.5, 24};
  point["timeline"]["traced_us"] = {5, 20, 4};
  return profile;
}

TEST(ProfileFile, TracedKernelsAreInEveryForm) {
  ASSERT_OK(ParseProfile("a.json", TracedProfile().dump()));
  const json events = json::parse(ProfileTrace(TracedProfile()))["traceEvents"];
  ASSERT_EQ(events.size(), 3u + 2u + 3u + 3u + 3u);
  EXPECT_EQ(events[12]["name"], "linear 8x4");
  EXPECT_EQ(events[12]["ts"], 4.5);
  EXPECT_EQ(events[12]["dur"], 20);
  // The first one may still run when the third one begins.
  EXPECT_NE(events[11]["tid"], events[12]["tid"]);
  EXPECT_NE(events[11]["tid"], events[13]["tid"]);
  EXPECT_NE(events[12]["tid"], events[13]["tid"]);
  EXPECT_THAT(ProfileCsv(TracedProfile()), HasSubstr(",20.0,0.5,9.0,8.0,0.5\n"));
  const std::string text = ProfileMarkdown(TracedProfile());
  EXPECT_THAT(text, HasSubstr("| per call | traced | exposed | gaps |\n"));
  EXPECT_THAT(text, HasSubstr("| 20.0 us | 9.00 us | 8.00 us | 500 ns |\n"));
}

TEST(ProfileFile, RefusesWhatIsNoWholeProfile) {
  EXPECT_OK(ParseProfile("a.json", Profile().dump()));
  const auto says = [](const char* place, json value, const char* message) {
    json profile = Profile();
    profile[json::json_pointer(place)] = std::move(value);
    EXPECT_THAT(ParseProfile("a.json", profile.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, message))
        << place;
  };
  says("/schema", "reprise.run/1", "a.json: schema: got \"reprise.run/1\", allowed: ");
  says("/engine/device", 1, "a.json: engine.device.name: got none, allowed: a text");
  says("/points", json::array(), "a.json: points: got [], allowed: an array, not empty");
  says("/points/0", 7, "a.json: points[0]: got 7, allowed: an object");
  says("/points/0/plain/launch_us/p50", "x",
       "a.json: points[0].plain.launch_us.p50: got \"x\", allowed: a number");
  says("/points/0/ops/1", nullptr, "a.json: points[0].ops[1]: got null, allowed: an object");
  says("/points/0/ops/1/net_us", nullptr, "points[0].ops[1].net_us: got null");
  says("/points/0/timeline/op", {0, 1, 2}, "points[0].timeline: got ");
  says("/points/0/timeline/stamped_us", {1}, "a place in ops and a time for every launch");
  says("/points/0/samples_ns", {{"replay", {{1}}}}, "points[0].samples_ns.device.0: got none");
  json traced = TracedProfile();
  traced["points"][0]["timeline"]["traced_us"] = {5, 20};
  EXPECT_THAT(ParseProfile("a.json", traced.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument, "a time for every launch"));
  traced = TracedProfile();
  traced["points"][0]["ops"][1].erase("traced");
  EXPECT_THAT(ParseProfile("a.json", traced.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "points[0].ops[1].traced.duration_us: got none"));
  EXPECT_THAT(ParseProfile("a.json", "{"), StatusIs(absl::StatusCode::kInvalidArgument, "a.json"));
}

}  // namespace
}  // namespace reprise::tools
