// SPDX-License-Identifier: Apache-2.0
#include "tools/units.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reprise::tools {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Units, ReadsSizesWithBinaryAndDecimalUnits) {
  EXPECT_EQ(*ParseBytes("4GiB"), 4ull << 30);
  EXPECT_EQ(*ParseBytes("256MiB"), 256ull << 20);
  EXPECT_EQ(*ParseBytes("1.5KiB"), 1536u);
  EXPECT_EQ(*ParseBytes("2GB"), 2'000'000'000u);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("4096B"), 4096u);
  EXPECT_EQ(*ParseBytes("1gib"), 1ull << 30);
}

TEST(Units, RefusesSizesItWouldHaveToGuess) {
  for (const char* text : {"", "GiB", "4G", "4 GiB", "-1MiB", "1.2.3MiB", "4GiBx", "nan", "inf",
                           "1e3", "99999999TiB"}) {
    const auto bytes = ParseBytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(bytes.status().message()),
                HasSubstr(std::string("got \"") + text + "\", allowed: "));
  }
}

TEST(Units, ReadsDurations) {
  EXPECT_EQ(*ParseDuration("30s"), nanoseconds(30'000'000'000));
  EXPECT_EQ(*ParseDuration("500ms"), nanoseconds(500'000'000));
  EXPECT_EQ(*ParseDuration("1.5s"), nanoseconds(1'500'000'000));
  EXPECT_EQ(*ParseDuration("2m"), nanoseconds(120'000'000'000));
  EXPECT_EQ(*ParseDuration("0"), nanoseconds(0));
  for (const char* text : {"", "30", "s", "-1s", "1 s", "1d", "99999999h"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(Units, ReadsBandwidths) {
  EXPECT_DOUBLE_EQ(*ParseBandwidth("4.70TB/s"), 4.70e12);
  EXPECT_DOUBLE_EQ(*ParseBandwidth("1GiB/s"), 1073741824.0);
  for (const char* text : {"4.70TB", "4.70", "0GB/s", "/s", "-1GB/s"}) {
    EXPECT_FALSE(ParseBandwidth(text).ok()) << text;
  }
  EXPECT_DOUBLE_EQ(*ParseBandwidth("1000000TB/s"), 1e18);
  // Each a number, and no product of number and unit.
  for (const std::string& number : {std::string("1000001"), std::string(300, '9')}) {
    const std::string text = number + "TB/s";
    EXPECT_EQ(ParseBandwidth(text).status().message(),
              "bandwidth: got \"" + text + "\", allowed: at most 1000000TB/s");
  }
}

TEST(Units, ReadsNumbersWithinTheirRange) {
  EXPECT_EQ(*ParseUnsigned("7", 1, 8), 7u);
  for (const char* text : {"0", "9", "", "7x", "-7", "7.0", " 7", "99999999999999999999999"}) {
    EXPECT_FALSE(ParseUnsigned(text, 1, 8).ok()) << text;
  }
  EXPECT_EQ(ParseUnsigned("9", 1, 8).status().message(),
            "number: got \"9\", allowed: a whole number from 1 to 8");
  EXPECT_DOUBLE_EQ(*ParseDecimal("0.7", 0, 1), 0.7);
  for (const char* text : {"nan", "inf", "-0.1", "1.1", "", "x", " 0.7", "0.7 ", "0.7\n", "0.7x"}) {
    EXPECT_FALSE(ParseDecimal(text, 0, 1).ok()) << text;
  }
}

TEST(Units, ReadsLists) {
  EXPECT_THAT(*ParseUnsignedList("1,2,4", 1, 8), ElementsAre(1, 2, 4));
  EXPECT_THAT(*ParseUnsignedList("8", 1, 8), ElementsAre(8));
  for (const char* text : {"", ",", "1,", "1,,2", "1,9", "1 ,2"}) {
    EXPECT_FALSE(ParseUnsignedList(text, 1, 8).ok()) << text;
  }
}

TEST(Units, ReadsListsOfCountsWithSuffixes) {
  EXPECT_THAT(*ParseCountList("128,1k,8K,1m", 1, 1u << 20), ElementsAre(128, 1024, 8192, 1u << 20));
  EXPECT_THAT(*ParseCountList("7", 7, 7), ElementsAre(7));
  for (const char* text :
       {"", ",", "1k,", "k", "1kk", "1 k", "0", "2m", "1.5k", "-1", "1g", "18014398509481984k"}) {
    EXPECT_FALSE(ParseCountList(text, 1, 1u << 20).ok()) << text;
  }
  EXPECT_EQ(ParseCountList("1k,4x", 1, 8192).status().message(),
            "count: got \"4x\", allowed: whole numbers from 1 to 8192, such as 128 or 8k");
}

TEST(Units, WritesQuantitiesForPeople) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(4ull << 30), "4.00 GiB");
  EXPECT_EQ(FormatDuration(0), "0 ns");
  EXPECT_EQ(FormatDuration(850), "850 ns");
  EXPECT_EQ(FormatDuration(12'345), "12.3 us");
  EXPECT_EQ(FormatDuration(4'560'000), "4.56 ms");
  EXPECT_EQ(FormatDuration(123e9), "123 s");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1'234'567), "1,234,567");
  EXPECT_EQ(FormatPercent(0.0341), "3.4 %");
  EXPECT_EQ(FormatBandwidth(4.7e12), "4.70 TB/s");
  EXPECT_EQ(FormatFlops(0), "0 FLOP");
  EXPECT_EQ(FormatFlops(999.6), "1.00 kFLOP");
  EXPECT_EQ(FormatFlops(16.4e9), "16.4 GFLOP");
  EXPECT_EQ(FormatFlops(5.126e14), "513 TFLOP");
  EXPECT_EQ(FormatRate(56.71), "56.7/s");
  EXPECT_EQ(FormatRate(1234.4), "1,234/s");
}

}  // namespace
}  // namespace reprise::tools
