// SPDX-License-Identifier: Apache-2.0
// Fixture of the kernel tests: one device, one dtype, a stream, the catalogue's kernels. On the
// host always; on CUDA where there is a device, skipping with the reason where not; and as the GPU
// kernels run under emulation, for each kind of matrix unit. The host's blocks start in a shuffled
// order on more threads than this machine may have cores, so that a result that depends on the
// order shows.
//
//   using RmsNormTest = KernelTest;
//   REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(RmsNormTest);
//   TEST_P(RmsNormTest, MatchesTheOracle) { ... RmsNorm(stream(), kernels(), args, rows) ... }
#ifndef REPRISE_TESTS_TESTING_KERNEL_TEST_H_
#define REPRISE_TESTS_TESTING_KERNEL_TEST_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/matrix_unit.h"
#include "tests/testing/oracle.h"

namespace reprise::testing {

struct KernelTestParam {
  runtime::DeviceKind device = runtime::DeviceKind::kHost;
  runtime::DType dtype = runtime::DType::kF32;
  // Of the KV cache; unset: dtype.
  std::optional<runtime::DType> kv = std::nullopt;
  // Not kNone: a GPU with such a unit, emulated on the host device, or as the code that the hip
  // device finds in the fake library.
  runtime::MatrixUnit emulated = runtime::MatrixUnit::kNone;
};

// "host_bf16", "emulated_mma_bf16", "host_bf16_kv_fp8_e4m3".
void PrintTo(const KernelTestParam& param, std::ostream* os);
std::string NameOfParam(const ::testing::TestParamInfo<KernelTestParam>& info);

// Of the host device in tests of an engine: several where ThreadSanitizer looks on. Elsewhere one,
// since waking the others takes longer than the kernels of a tiny model; kernels' own tests have
// several everywhere.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kEngineHostThreads = 3;
#else
inline constexpr int kEngineHostThreads = 1;
#endif

// On the host `host_threads` threads take the blocks of a kernel in a shuffled order.
absl::StatusOr<std::unique_ptr<runtime::Device>> MakeTestDevice(const KernelTestParam& param,
                                                                int host_threads = 3);

std::vector<KernelTestParam> EveryDeviceAndDType();
// The same, and with KV caches of 8 bits; under emulation some of them.
std::vector<KernelTestParam> EveryDeviceDTypeAndKv();
std::vector<KernelTestParam> EveryKernelTestDevice();  // f32

class KernelTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override;

  runtime::DType dtype() const { return GetParam().dtype; }
  runtime::DType kv_dtype() const { return GetParam().kv.value_or(dtype()); }
  bool is_emulated() const { return GetParam().emulated != runtime::MatrixUnit::kNone; }
  // Of a list whose cases emulated units go through with kernels that are the same for all of them,
  // and the host's too: each of the three units takes a third. True where nothing is emulated.
  bool IsOfThisUnit(size_t index) const {
    constexpr size_t kUnits = 3;
    return !is_emulated() || index % kUnits == static_cast<size_t>(GetParam().emulated) % kUnits;
  }
  runtime::Device& device() { return *device_; }
  runtime::Stream& stream() { return *stream_; }
  const kernels::KernelSet& kernels() const { return *kernels_; }

 private:
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<kernels::KernelSet> kernels_;
};

// EXPECTs |got - expected.value| <= expected.slack + one rounding to `dtype`, element by element,
// and says which is worst. REQUIRES: got.size() >= expected.value.size(). Elements beyond must
// still be poisoned (NaN).
void ExpectNear(std::span<const double> got, const Expected& expected, runtime::DType dtype);

}  // namespace reprise::testing

// For tests of many draws or many batches, whose point is not what an emulator looks for: they take
// minutes there, and the same source runs on the host and on CUDA.
#define REPRISE_SKIP_IF_EMULATED() \
  if (is_emulated()) GTEST_SKIP() << "needs a device that is not emulated"
// The same, but for one dtype.
#define REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16()                     \
  if (is_emulated() && dtype() != ::reprise::runtime::DType::kBf16) \
  GTEST_SKIP() << "needs a device that is not emulated, or bf16"

#define REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(suite)                                          \
  INSTANTIATE_TEST_SUITE_P(EveryDevice, suite,                                             \
                           ::testing::ValuesIn(::reprise::testing::EveryDeviceAndDType()), \
                           ::reprise::testing::NameOfParam)

#define REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(EveryDevice, suite,                                               \
                           ::testing::ValuesIn(::reprise::testing::EveryDeviceDTypeAndKv()), \
                           ::reprise::testing::NameOfParam)

// For ops that know no dtype.
#define REPRISE_FOR_EVERY_DEVICE(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(EveryDevice, suite,                                               \
                           ::testing::ValuesIn(::reprise::testing::EveryKernelTestDevice()), \
                           ::reprise::testing::NameOfParam)

#endif  // REPRISE_TESTS_TESTING_KERNEL_TEST_H_
