// SPDX-License-Identifier: Apache-2.0
// The device layer's conversions (kernels/device/types.h, fp8.h) on every device, bit by bit
// against the formats' definitions, and its tanh (thread.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/matrix_unit.h"
#include "tests/kernels/convert_kernels.h"
#include "tests/testing/any_device.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/ocp_fp8.h"
#include "tests/testing/status_matchers.h"

#if REPRISE_WITH_EMULATOR
#define REPRISE_DECLARE_TABLE(ns)                               \
  namespace reprise::kernels::ns {                              \
  std::span<const runtime::KernelDef> EmulatedConvertKernels(); \
  }
REPRISE_DECLARE_TABLE(on_mma)
REPRISE_DECLARE_TABLE(on_mfma)
REPRISE_DECLARE_TABLE(on_wmma)
#endif

#if REPRISE_WITH_CUDA
extern "C" {
extern const std::byte reprise_cuda_convert_kernels[];
extern const std::byte reprise_cuda_convert_kernels_end[];
}
#endif

namespace reprise::testing {
namespace {

using runtime::DType;
using runtime::MatrixUnit;

std::span<const runtime::KernelDef> KernelsOf(MatrixUnit unit) {
#if REPRISE_WITH_EMULATOR
  if (unit == MatrixUnit::kMma) return kernels::on_mma::EmulatedConvertKernels();
  if (unit == MatrixUnit::kMfma) return kernels::on_mfma::EmulatedConvertKernels();
  if (unit == MatrixUnit::kWmma) return kernels::on_wmma::EmulatedConvertKernels();
#endif
  EXPECT_EQ(unit, MatrixUnit::kNone);
  return kernels::on_host::kConvertKernels;
}

class ConvertTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    ASSERT_OK_AND_ASSIGN(device_, MakeDevice(GetParam().device));
    ASSERT_OK_AND_ASSIGN(stream_, device_->CreateStream());
    runtime::KernelImage image{.kernels = KernelsOf(GetParam().emulated), .cuda_fatbins = {}};
#if REPRISE_WITH_CUDA
    static const std::span<const std::byte> fatbins[] = {
        {reprise_cuda_convert_kernels, reprise_cuda_convert_kernels_end}};
    image.cuda_fatbins = fatbins;
#endif
    ASSERT_OK_AND_ASSIGN(module_, device_->Load(image));
  }

  // What the kernel makes of `in`, singly; EXPECTs the same of packs where there are some.
  template <typename Out, typename In>
  std::vector<Out> Convert(const std::string& kernel_name, std::vector<In> in, bool has_packs) {
    const size_t count = in.size();
    in.resize((count + 15) / 16 * 16);
    GuardedMemory memory(*device_, *stream_);
    ConvertArgs args;
    args.in = memory.Constant(in);
    Out* const out = memory.Poisoned<Out>(in.size());
    Out* const from_packs = memory.Poisoned<Out>(has_packs ? in.size() : 0);
    args.out = out;
    args.from_packs = from_packs;
    args.n = static_cast<int32_t>(in.size());
    const absl::StatusOr<runtime::Kernel> kernel = module_->Find(kernel_name);
    EXPECT_OK(kernel.status());
    EXPECT_OK(stream_->Launch(*kernel, {.block = 256}, args));
    memory.Check();
    std::vector<Out> result = memory.Read(out);
    if (has_packs) {
      const std::vector<Out> packed = memory.Read(from_packs);
      EXPECT_EQ(std::memcmp(packed.data(), result.data(), result.size() * sizeof(Out)), 0)
          << kernel_name << ": packs are converted otherwise than single elements";
    }
    result.resize(count);
    return result;
  }

 private:
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<runtime::KernelModule> module_;
};
REPRISE_FOR_EVERY_DEVICE(ConvertTest);

// Every value of both 16-bit formats, which has all exponents of an f32, and random bits.
std::vector<float> Sweep() {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  std::vector<float> values;
  for (const DType dtype : {DType::kBf16, DType::kF16})
    for (const double value : Decode(dtype, std::as_bytes(std::span(codes))))
      values.push_back(static_cast<float>(value));
  Random random(7);
  for (int i = 0; i < 50'000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.Bits())));
    // Where the formats are narrower than an f32: few of the above.
    values.push_back(static_cast<float>(random.Normal() * std::exp2(random.Uniform() * 40 - 22)));
  }
  return values;
}

TEST_P(ConvertTest, EveryFp8CodeBecomesItsValue) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (const OcpFp8& format : {kOcpE4m3, kOcpE5m2}) {
    const std::string name = std::string("reprise_test_") + format.name + "_to_f32";
    const std::vector<float> got = Convert<float>(name, codes, true);
    for (const uint8_t code : codes) {
      const double want = ValueOf(format, code);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got[code])) << name << " " << int{code};
      } else {
        EXPECT_EQ(got[code], want) << name << " " << int{code};
        EXPECT_EQ(std::signbit(got[code]), std::signbit(want)) << name << " " << int{code};
      }
    }
  }
}

TEST_P(ConvertTest, EveryFp8CodeSurvivesTheWayThroughFloat) {
  for (const OcpFp8& format : {kOcpE4m3, kOcpE5m2}) {
    std::vector<float> values;
    for (int code = 0; code < 256; ++code)
      values.push_back(static_cast<float>(ValueOf(format, static_cast<uint8_t>(code))));
    const std::string name = std::string("reprise_test_f32_to_") + format.name;
    const std::vector<uint8_t> got = Convert<uint8_t>(name, values, true);
    for (int code = 0; code < 256; ++code) {
      const int finite = (code & 0x80) | std::min<int>(code & 0x7f, format.largest);
      EXPECT_EQ(got[static_cast<size_t>(code)],
                std::isnan(values[static_cast<size_t>(code)]) ? kOcpNaN : finite)
          << name << " " << code;
    }
  }
}

TEST_P(ConvertTest, FloatsBecomeTheNearestFp8ToTheBit) {
  for (const OcpFp8& format : {kOcpE4m3, kOcpE5m2}) {
    std::vector<float> values = RoundingDecisions(format);
    const std::vector<float> sweep = Sweep();
    values.insert(values.end(), sweep.begin(), sweep.end());
    const std::string name = std::string("reprise_test_f32_to_") + format.name;
    const std::vector<uint8_t> got = Convert<uint8_t>(name, values, true);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(got[i], NearestCode(format, values[i])) << name << " of " << values[i];
  }
}

TEST_P(ConvertTest, Every16BitCodeBecomesItsValue) {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    const std::string name = "reprise_test_" + std::string(NameOf(dtype)) + "_to_f32";
    const std::vector<float> got = Convert<float>(name, codes, false);
    const std::vector<double> want = Decode(dtype, std::as_bytes(std::span(codes)));
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << name << " " << i;
      if (std::isnan(want[i])) continue;
      ASSERT_EQ(got[i], want[i]) << name << " " << i;
      ASSERT_EQ(std::signbit(got[i]), std::signbit(want[i])) << name << " " << i;
    }
  }
}

TEST_P(ConvertTest, FloatsBecomeTheNearest16BitFloatToTheBit) {
  const std::vector<float> values = Sweep();
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    const std::string name = "reprise_test_f32_to_" + std::string(NameOf(dtype));
    const std::vector<uint16_t> got = Convert<uint16_t>(name, values, false);
    std::vector<double> rounded;
    for (const float value : values) rounded.push_back(RoundTo(dtype, value));
    const std::vector<std::byte> want = Encode(dtype, rounded);
    const std::vector<double> got_values = Decode(dtype, std::as_bytes(std::span(got)));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(got_values[i])) << name << " " << i;
      } else {
        ASSERT_EQ(std::memcmp(&got[i], &want[2 * i], 2), 0)
            << name << " of " << values[i] << ": " << got_values[i];
      }
    }
  }
}

TEST_P(ConvertTest, TanhIsWithinFourUnitsInTheLastPlace) {
  std::vector<float> values = Sweep();
  for (int i = -200'000; i <= 200'000; ++i) values.push_back(static_cast<float>(i) * 5e-5f);
  const std::vector<float> got = Convert<float>("reprise_test_tanh", values, false);
  double worst = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::isnan(got[i]), std::isnan(values[i])) << values[i];
    if (std::isnan(values[i])) continue;
    // Denormal numbers may count as zero.
    const double want = std::tanh(double{values[i]});
    if (std::fabs(want) < std::numeric_limits<float>::min()) continue;
    ASSERT_LE(std::fabs(got[i]), 1.0f) << values[i];
    worst = std::max(worst, std::fabs(got[i] - want) / (2 * HalfUlp(DType::kF32, want)));
    ASSERT_LE(worst, 4.0) << "of " << values[i] << ": got " << got[i] << ", want " << want;
  }
  RecordProperty("worst_ulp", std::to_string(worst));
}

}  // namespace
}  // namespace reprise::testing
