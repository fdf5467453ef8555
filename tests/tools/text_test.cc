// SPDX-License-Identifier: Apache-2.0
// What goes to a terminal: tables, byte text, transcripts of several requests.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/address.h"
#include "tools/byte_text.h"
#include "tools/console.h"
#include "tools/samples.h"
#include "tools/sched/transcript.h"
#include "tools/table.h"

namespace reprise::tools {
namespace {

using ::testing::HasSubstr;

TEST(Table, AlignsNamesLeftAndNumbersRight) {
  Table table({"graph", "replays"});
  table.AddRow({"decode/128", "7"});
  table.AddRow({"mixed/64", "1,234"});
  EXPECT_EQ(table.ToString(),
            "graph       replays\n"
            "----------  -------\n"
            "decode/128        7\n"
            "mixed/64      1,234\n");
}

TEST(Table, FillsShortRowsAndLeavesNoTrailingSpaces) {
  Table table({});
  table.AlignLeft();
  table.AddRow({"model", "tiny"});
  table.AddRow({"x"});
  EXPECT_EQ(table.ToString(), "model  tiny\nx\n");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(DisplayWidth("a\xC3\xA9"), 2u);
  Table table({"a", "b"});
  table.AddRow({"\xC3\xA9", "1"});
  EXPECT_EQ(table.ToString(), "a  b\n-  -\n\xC3\xA9  1\n");
}

Table Latencies() {
  Table table({"graph", "p50", "p90", "mean"});
  table.AddRow({"decode/128", "5.5 ms", "5.6 ms", "5.5 ms"});
  table.AddRow({"mixed/64", "12 ms", "13 ms", "12 ms"});
  return table;
}

TEST(Table, IsCutIntoTablesBelowEachOtherWhereItIsTooWide) {
  EXPECT_EQ(Latencies().ToString(34), Latencies().ToString());  // as wide as it is
  EXPECT_EQ(Latencies().ToString(33),
            "graph          p50     p90\n"
            "----------  ------  ------\n"
            "decode/128  5.5 ms  5.6 ms\n"
            "mixed/64     12 ms   13 ms\n"
            "\n"
            "graph         mean\n"
            "----------  ------\n"
            "decode/128  5.5 ms\n"
            "mixed/64     12 ms\n");
}

TEST(Table, BecomesAListWhereKeysAndAColumnDoNotFit) {
  EXPECT_EQ(Latencies().ToString(17),
            "graph:\n"
            "decode/128\n"
            "  p50   5.5 ms\n"
            "  p90   5.6 ms\n"
            "  mean  5.5 ms\n"
            "mixed/64\n"
            "  p50   12 ms\n"
            "  p90   13 ms\n"
            "  mean  12 ms\n");
  Table keys({"rows", "context", "replay"});
  keys.SetKeys(2);
  keys.AddRow({"1", "128", "540 us"});
  EXPECT_EQ(keys.ToString(20), "rows 1, context 128\n  replay  540 us\n");
}

TEST(Table, WithoutKeysRepeatsNothing) {
  Table table({"requests", "wall"});
  table.SetKeys(0);
  table.AddRow({"24", "2.1 s"});
  EXPECT_EQ(table.ToString(10), "requests\n--------\n24\n\n wall\n-----\n2.1 s\n");
}

TEST(Table, BreaksFreeTextAtItsWords) {
  Table table({});
  table.AlignLeft();
  table.AddRow({"model", "one of four layers, of random weights"});
  table.AddRow({"dtype", "bf16"});
  EXPECT_EQ(table.ToString(26),
            "model  one of four layers,\n"
            "       of random weights\n"
            "dtype  bf16\n");
  EXPECT_EQ(table.ToString(20),
            "model\n"
            "  one of four\n"
            "  layers, of random\n"
            "  weights\n"
            "dtype\n"
            "  bf16\n");
}

TEST(TextWidth, CutsAtCharacters) {
  EXPECT_EQ(CutToWidth("a\xC3\xA9z", 2), "a\xC3\xA9");
  EXPECT_EQ(CutToWidth("ab", 5), "ab");
  EXPECT_EQ(CutToWidth("ab", 0), "");
}

TEST(TextWidth, BreaksAtSpacesAndLeavesLongWordsWhole) {
  EXPECT_EQ(Paragraph("a bc  def", 4), "a bc\ndef\n");
  EXPECT_EQ(Paragraph("a abcdefgh b", 4), "a\nabcdefgh\nb\n");
  EXPECT_EQ(Paragraph("a bc def", 6, 2), "a bc\n  def\n");
  EXPECT_EQ(Paragraph("", 4), "\n");
  EXPECT_EQ(Paragraph("a bc", kNoWidth), "a bc\n");
}

TEST(ByteText, EscapesControlBytesExceptNewline) {
  EXPECT_EQ(ByteText(TokensOfText("a\nb\tc\x1b[31m\x7f")), "a\nb\\x09c\\x1b[31m\\x7f");
  EXPECT_EQ(ByteText(TokensOfText("\xC2\x9B"
                                  "31m")),
            "\\xc2\\x9b31m");  // C1 control, in UTF-8
}

TEST(ByteText, KeepsValidUtf8AndEscapesTheRest) {
  EXPECT_EQ(ByteText(TokensOfText("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80")),
            "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(ByteText(TokensOfText("\xFF"
                                  "a\x80"
                                  "b\xC3")),
            "\\xffa\\x80b\\xc3");
  EXPECT_EQ(ByteText(TokensOfText("\xC0\xAF")), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(ByteText(TokensOfText("\xED\xA0\x80")), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(ByteText(TokensOfText("\xF4\x90\x80\x80")), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

TEST(ByteText, HoldsACharacterBackUntilItIsWhole) {
  ByteTextStream stream;
  EXPECT_EQ(stream.Push(0xE2), "");
  EXPECT_EQ(stream.Push(0x82), "");
  EXPECT_EQ(stream.Push(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(stream.Push(0xE2), "");
  EXPECT_EQ(stream.Push('x'), "\\xe2x");
  EXPECT_EQ(stream.Push(0xC3), "");
  EXPECT_EQ(stream.Push(256), "\\xc3<256>");
  EXPECT_EQ(stream.Push(0xC3), "");
  EXPECT_EQ(stream.Flush(), "\\xc3");
}

TEST(Samples, PercentilesAreNearestRank) {
  Samples samples;
  EXPECT_EQ(samples.Percentile(50), 0.0);
  for (int i = 10; i >= 1; --i) samples.Add(i);
  EXPECT_EQ(samples.Percentile(50), 5.0);
  EXPECT_EQ(samples.Percentile(90), 9.0);
  EXPECT_EQ(samples.Percentile(99), 10.0);
  EXPECT_EQ(samples.Percentile(1), 1.0);
  EXPECT_DOUBLE_EQ(samples.Mean(), 5.5);
}

TEST(Address, AcceptsTcpAndUnixAndSaysWhatItAllows) {
  for (const char* text : {"127.0.0.1:50061", "localhost:1", "[::1]:50061", "unix:/tmp/a.sock"}) {
    EXPECT_TRUE(ParseAddress(text).ok()) << text;
  }
  for (const char* text : {"", "localhost", ":50061", "::1:50061", "host:0", "host:65536", "host:x",
                           "unix:", "[]:1", "a b:1"}) {
    const auto address = ParseAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("allowed: "));
  }
  EXPECT_FALSE(ParseAddress("unix:/" + std::string(200, 'a')).ok());
}

TEST(ProgressBar, FillsWithTheShareThatIsDone) {
  EXPECT_EQ(ProgressBar(0, 0, 4), "[....]");
  EXPECT_EQ(ProgressBar(1, 2, 4), "[##..]");
  EXPECT_EQ(ProgressBar(2, 2, 4), "[####]");
}

void Say(Transcript* transcript, Request* request, std::string_view text) {
  for (uint32_t token : TokensOfText(text)) {
    request->tokens.push_back(token);
    transcript->OnToken(*request, request->tokens.size() - 1);
  }
}

Request MakeRequest(uint32_t id, std::string_view prompt) {
  Request request;
  request.id = id;
  request.prompt = TokensOfText(prompt);
  return request;
}

// All tokens of a request of several steps are there before the first of them is shown.
TEST(Transcript, ShowsTokensThatComeTogetherOneByOneAndHidesTheEnd) {
  Console console;
  Transcript transcript(&console, /*byte_tokens=*/true, /*several=*/false);
  Request request = MakeRequest(1, "so: ");
  ::testing::internal::CaptureStdout();
  transcript.OnArrival(request);
  request.tokens = TokensOfText("abc");
  request.tokens.push_back(256);
  request.finish = FinishReason::kStopToken;
  for (size_t i = 0; i < request.tokens.size(); ++i) transcript.OnToken(request, i);
  transcript.OnFinished(request);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "so: abc\n");
}

TEST(Transcript, PrintsWholeLinesOfSeveralRequestsBehindTheirNumbers) {
  Console console;
  Transcript transcript(&console, /*byte_tokens=*/true, /*several=*/true);
  Request first = MakeRequest(1, "one\n");
  Request second = MakeRequest(12, "two");
  ::testing::internal::CaptureStdout();
  transcript.OnArrival(first);
  transcript.OnArrival(second);
  Say(&transcript, &first, "alpha\n\nbe");
  Say(&transcript, &second, "gamma\n");
  Say(&transcript, &first, "ta");
  first.tokens.push_back(256);
  first.finish = FinishReason::kStopToken;
  transcript.OnToken(first, first.tokens.size() - 1);
  transcript.OnFinished(first);
  transcript.OnFinished(second);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "[  1] > one\\n\n[ 12] > two\n[  1]   alpha\n[ 12]   gamma\n[  1]   beta\n");
}

TEST(Transcript, BreaksLongLinesAtSpaces) {
  Console console;
  Transcript transcript(&console, true, true);
  Request request = MakeRequest(1, "p");
  ::testing::internal::CaptureStdout();
  Say(&transcript, &request,
      std::string(60, 'a') + " " + std::string(60, 'b') + " " + std::string(200, 'c'));
  transcript.OnFinished(request);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "[  1]   " + std::string(60, 'a') + "\n[  1]   " + std::string(60, 'b') + "\n[  1]   " +
                std::string(96, 'c') + "\n[  1]   " + std::string(96, 'c') + "\n[  1]   " +
                std::string(8, 'c') + "\n");
}

TEST(Transcript, StreamsASingleRequestPieceByPiece) {
  Console console;
  Transcript transcript(&console, true, /*several=*/false);
  Request request = MakeRequest(1, "You");
  ::testing::internal::CaptureStdout();
  transcript.OnArrival(request);
  Say(&transcript, &request, " may");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "You may");
}

TEST(Transcript, LeavesTheEndTokenOutOfTheText) {
  Request request = MakeRequest(1, "p");
  request.tokens = {'h', 'i', 256};
  request.finish = FinishReason::kStopToken;
  EXPECT_EQ(TextOf(request, true), "hi");
  EXPECT_EQ(TextOf(request, false), "104 105 256");
  request.finish = FinishReason::kLength;
  EXPECT_EQ(TextOf(request, true), "hi<256>");
}

}  // namespace
}  // namespace reprise::tools
