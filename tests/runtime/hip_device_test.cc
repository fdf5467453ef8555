// SPDX-License-Identifier: Apache-2.0
// The hip device over fake libraries that are opened as the real one is: what it asks of them, what
// it makes of their answers, and every error on the way; capture is in hip_capture_test.cc. What
// holds for every device is in the *_contract_test.cc files, which run over the same fake.
#include "runtime/hip/hip_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/buffer.h"
#include "tests/runtime/hip_fake_test.h"
#include "tests/testing/fake_hip/fake_hip_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::FakeHipPath;
using ::reprise::testing::FakeHipRelease;
using ::reprise::testing::LackingHipPath;
using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::ProbeImage;
using ::reprise::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using ::reprise::testing::kExhausted;
using ::reprise::testing::kInternal;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kUnavailable;
using ::reprise::testing::kUnimplemented;

absl::StatusOr<std::unique_ptr<Device>> Create(const std::string& library) {
  return Device::Create({.kind = DeviceKind::kHip, .hip_library = library});
}

class HipDeviceTest : public HipFakeTest {};
REPRISE_ON_EVERY_HIP_RELEASE(HipDeviceTest);

TEST(HipLibrary, MissingOneIsUnavailableAndNamesWhatWasTried) {
  const std::string path = "/nowhere/libamdhip64.so.6";
  EXPECT_THAT(Create(path),
              StatusIs(kUnavailable, "device 'hip': no HIP library: " + path +
                                         ": cannot open shared object file: No such file"));
  std::string why;
  EXPECT_EQ(CountHipDevices(&why, path), 0);
  EXPECT_THAT(why, HasSubstr(path));
}

TEST(HipLibrary, SearchNamesEveryReleaseNewestFirst) {
  std::string why;
  const int count = CountHipDevices(&why);
  if (count > 0 || !why.starts_with("no HIP library")) {
    GTEST_SKIP() << "this machine has a HIP library: " << count << " devices, " << why;
  }
  EXPECT_EQ(why,
            "no HIP library: libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5, libamdhip64.so: "
            "cannot open shared object file: No such file or directory");
  EXPECT_THAT(Device::Create({.kind = DeviceKind::kHip}), StatusIs(kUnavailable, why));
  EXPECT_THAT(CompiledDeviceKinds(), Not(::testing::Contains(DeviceKind::kHip)));
}

TEST(HipLibrary, FileThatIsNoLibraryIsRefusedWithTheLoadersReason) {
  EXPECT_THAT(Create("/proc/self/status"), StatusIs(kUnavailable, "no HIP library: /proc/self"));
}

TEST(HipLibrary, OneThatLacksACallIsUnavailableAndNamesTheCall) {
  EXPECT_THAT(Create(LackingHipPath()), StatusIs(kUnavailable, "lacks hipGetErrorName"));
  EXPECT_THAT(Create(LackingHipPath()), StatusIs(kUnavailable, "ROCm 5.2 or later"));
}

TEST_P(HipDeviceTest, MachineWithoutADeviceIsUnavailable) {
  fake_.machine().num_devices = 0;
  EXPECT_THAT(Make(), StatusIs(kUnavailable,
                               "device 'hip': hipGetDeviceCount: " +
                                   Said("no ROCm-capable device is detected", "hipErrorNoDevice")));
  std::string why;
  EXPECT_EQ(CountHipDevices(&why, FakeHipPath(GetParam())), 0);
  EXPECT_THAT(why, HasSubstr("hipErrorNoDevice"));
}

TEST_P(HipDeviceTest, CountsDevicesAndRefusesOrdinalsBeyond) {
  fake_.machine().num_devices = 3;
  EXPECT_EQ(CountHipDevices(nullptr, FakeHipPath(GetParam())), 3);
  EXPECT_OK(Make(2));
  EXPECT_THAT(Make(3), StatusIs(kUnavailable, "ordinal is 3; this machine has 3"));
  EXPECT_THAT(Make(-1), StatusIs(kInvalid, "device 'hip': ordinal is -1"));
}

TEST_P(HipDeviceTest, PropertiesAreTheLibrarysAnswers) {
  fake_.machine().num_multiprocessors = 304;
  fake_.machine().total_bytes = size_t{192} << 30;
  ASSERT_OK_AND_ASSIGN(const auto device, Make(1));
  const DeviceProperties& properties = device->properties();
  EXPECT_EQ(properties.kind, DeviceKind::kHip);
  EXPECT_EQ(properties.name, "Fake Instinct");
  EXPECT_EQ(properties.architecture, "gfx942");
  EXPECT_THAT(
      properties.driver,
      StartsWith(GetParam() == FakeHipRelease::kCurrent ? "HIP 7.1.25312, /" : "HIP 5.2.21153, /"));
  EXPECT_THAT(properties.driver, HasSubstr("fake_amdhip64"));
  EXPECT_EQ(properties.ordinal, 1);
  EXPECT_EQ(properties.num_multiprocessors, 304);
  EXPECT_EQ(properties.warp_size, 64);
  EXPECT_EQ(properties.compute_capability, 0);
  EXPECT_EQ(properties.max_shared_bytes, 64u << 10);
  EXPECT_EQ(properties.shared_bytes_per_multiprocessor, 64u << 10);
  EXPECT_EQ(properties.total_bytes, size_t{192} << 30);
}

TEST_P(HipDeviceTest, RdnaHasWarpsOf32) {
  fake_.machine().warp_size = 32;
  fake_.machine().architecture = "gfx1100";
  ASSERT_OK_AND_ASSIGN(const auto device, Make());
  EXPECT_EQ(device->properties().warp_size, 32);
  EXPECT_EQ(device->properties().architecture, "gfx1100");
}

TEST_P(HipDeviceTest, ArchitectureThatIsNoneIsLeftEmpty) {
  fake_.machine().architecture = "?";
  ASSERT_OK_AND_ASSIGN(const auto device, Make());
  EXPECT_EQ(device->properties().architecture, "");
}

TEST_P(HipDeviceTest, AnswersThatMakeNoSenseAreRefused) {
  fake_.machine().warp_size = 1024;
  EXPECT_THAT(Make(), StatusIs(kInternal, "warp size 1024"));
  fake_.machine().warp_size = 64;
  fake_.machine().num_multiprocessors = 0;
  EXPECT_THAT(Make(), StatusIs(kInternal, "0 multiprocessors"));
}

struct ErrorCase {
  int error;
  absl::StatusCode code;
};

TEST_P(HipDeviceTest, ErrorsKeepCallNameAndTextAndGetACode) {
  MakeStream();
  for (const ErrorCase& c : {ErrorCase{1, kInvalid},         ErrorCase{2, kExhausted},
                             ErrorCase{3, kUnavailable},     ErrorCase{9, kInvalid},
                             ErrorCase{35, kUnavailable},    ErrorCase{98, kNotFound},
                             ErrorCase{100, kUnavailable},   ErrorCase{101, kInvalid},
                             ErrorCase{209, kNotFound},      ErrorCase{400, kInvalid},
                             ErrorCase{401, kPrecondition},  ErrorCase{500, kNotFound},
                             ErrorCase{600, kUnavailable},   ErrorCase{700, kInternal},
                             ErrorCase{701, kInvalid},       ErrorCase{719, kInternal},
                             ErrorCase{801, kUnimplemented}, ErrorCase{900, kPrecondition},
                             ErrorCase{901, kPrecondition},  ErrorCase{902, kPrecondition},
                             ErrorCase{903, kPrecondition},  ErrorCase{904, kPrecondition},
                             ErrorCase{905, kPrecondition},  ErrorCase{906, kPrecondition},
                             ErrorCase{908, kPrecondition},  ErrorCase{999, kInternal}}) {
    fake_.Fail("hipStreamSynchronize", c.error);
    EXPECT_THAT(stream_->Synchronize(), StatusIs(c.code, "hipStreamSynchronize: ")) << c.error;
  }
  fake_.Fail("hipStreamSynchronize", 719);
  EXPECT_THAT(stream_->Synchronize(),
              StatusIs(kInternal, "hipStreamSynchronize: " +
                                      Said("unspecified launch failure", "hipErrorLaunchFailure")));
  EXPECT_OK(stream_->Synchronize());
}

TEST_P(HipDeviceTest, OutOfMemorySaysAskedAndFree) {
  fake_.machine().total_bytes = 1 << 20;
  MakeStream();
  ASSERT_OK_AND_ASSIGN(const auto half, DeviceBuffer::Create(*device_, 512 << 10));
  EXPECT_EQ(*device_->FreeBytes(), 512u << 10);
  EXPECT_THAT(device_->Allocate(600 << 10),
              StatusIs(kExhausted, "hip:0: 614400 bytes asked, 524288 bytes free"));
  fake_.Fail("hipHostMalloc", 2);
  EXPECT_THAT(
      device_->AllocateMapped(100),
      StatusIs(kExhausted, "hipHostMalloc: " + Said("out of memory", "hipErrorOutOfMemory")));
}

TEST_P(HipDeviceTest, MappedMemoryHasAnAddressOfItsOwnOnTheDevice) {
  MakeStream();
  ASSERT_OK_AND_ASSIGN(const auto mapped, MappedBuffer::Create(*device_, 64));
  EXPECT_NE(mapped.host(), mapped.device());
  *mapped.host() = std::byte{7};
  EXPECT_EQ(*mapped.device(), std::byte{7});
}

TEST_P(HipDeviceTest, MappedMemoryThatTheDeviceCannotSeeIsGivenBack) {
  MakeStream();
  fake_.Fail("hipHostGetDevicePointer", 1);
  EXPECT_THAT(device_->AllocateMapped(64), StatusIs(kInvalid, "hipHostGetDevicePointer"));
  EXPECT_EQ(fake_.counts().mapped, 0);
}

TEST_P(HipDeviceTest, CodeThatFitsIsLoadedAndTheRestPassedOver) {
  MakeStream();
  for (const int error : {200, 209}) {
    fake_.machine().no_code_error = error;
    ASSERT_OK_AND_ASSIGN(const auto module, device_->Load(Image({"gfx90a", "gfx942", "gfx1100"})));
    EXPECT_OK(module->Find(testing::kProbeAffine));
    EXPECT_THAT(module->Find(testing::kProbeNowhere),
                StatusIs(kNotFound, "'reprise_probe_nowhere' has no code for Fake Instinct"));
  }
  EXPECT_EQ(fake_.counts().modules, 2);
}

TEST_P(HipDeviceTest, KernelWithoutCodeForTheDeviceNamesBothAndTheReason) {
  MakeStream();
  ASSERT_OK_AND_ASSIGN(const auto module, device_->Load(Image({"gfx90a", "gfx1100"})));
  const auto found = module->Find(testing::kProbeAffine);
  EXPECT_THAT(found,
              StatusIs(kNotFound,
                       "kernel 'reprise_probe_affine' has no code for Fake Instinct (hip:0): "
                       "hipModuleLoadData: " +
                           Said("no kernel image is available for execution on the device",
                                "hipErrorNoBinaryForGpu")));
}

TEST_P(HipDeviceTest, ImageThatCarriesNoHipCodeSaysSo) {
  MakeStream();
  ASSERT_OK_AND_ASSIGN(const auto module,
                       device_->Load({.kernels = ProbeImage().kernels, .cuda_fatbins = {}}));
  EXPECT_THAT(module->Find(testing::kProbeAffine),
              StatusIs(kNotFound,
                       "kernel 'reprise_probe_affine' has no code for Fake Instinct "
                       "(hip:0): the image carries none for device 'hip'"));
}

TEST_P(HipDeviceTest, BytesThatAreNoCodeGiveNoKernels) {
  MakeStream();
  const std::vector<std::byte> noise(4096, std::byte{0x5a});
  const std::span<const std::byte> spans[] = {noise};
  ASSERT_OK_AND_ASSIGN(const auto module, device_->Load({.kernels = ProbeImage().kernels,
                                                         .cuda_fatbins = {},
                                                         .hip_code_objects = spans}));
  EXPECT_THAT(module->Find(testing::kProbeAffine),
              StatusIs(kNotFound, Said("device kernel image is invalid", "hipErrorInvalidImage")));
  const std::span<const std::byte> empty[] = {{}};
  EXPECT_THAT(device_->Load(
                  {.kernels = ProbeImage().kernels, .cuda_fatbins = {}, .hip_code_objects = empty}),
              StatusIs(kInvalid, "0 bytes"));
}

TEST_P(HipDeviceTest, LoadReportsOtherFailures) {
  MakeStream();
  for (const char* call : {"hipModuleLoadData", "hipModuleGetFunction", "hipFuncGetAttribute"}) {
    fake_.Fail(call, 999);
    EXPECT_THAT(device_->Load(Image({"gfx942"})), StatusIs(kInternal, call));
  }
  EXPECT_OK(device_->Load(Image({"gfx942"})));
}

TEST_P(HipDeviceTest, LaunchErrorNamesTheKernelAndTheShape) {
  MakeStream();
  const Kernel affine = Affine();
  fake_.Fail("hipModuleLaunchKernel", 701);
  EXPECT_THAT(stream_->Launch(affine, {.grid_x = 3, .block = 64}, ProbeAffineArgs{}),
              StatusIs(kInvalid,
                       "kernel 'reprise_probe_affine', grid 3 x 1, block 64, shared 0 bytes: "
                       "hipModuleLaunchKernel: "));
}

TEST_P(HipDeviceTest, StaticSharedMemoryTakesItsPart) {
  MakeStream();
  const auto nothing = [](const HostBlockContext&, const void*) {};
  const testing::FakeHipKernel kernels[] = {
      {.name = "static", .run = nothing, .args_bytes = 4, .static_shared_bytes = 1024}};
  testing::FakeHipCodeObject object{.kernels = kernels, .num_kernels = 1};
  std::copy(std::begin(testing::kFakeHipMagic), std::end(testing::kFakeHipMagic), object.magic);
  const std::span<const std::byte> spans[] = {std::as_bytes(std::span(&object, 1))};
  const KernelDef defs[] = {{"static"}};
  ASSERT_OK_AND_ASSIGN(
      const auto module,
      device_->Load({.kernels = defs, .cuda_fatbins = {}, .hip_code_objects = spans}));
  ASSERT_OK_AND_ASSIGN(const Kernel kernel, module->Find("static"));
  EXPECT_OK(stream_->Launch(kernel, {.shared_bytes = 63 << 10}, uint32_t{1}));
  EXPECT_THAT(stream_->Launch(kernel, {.shared_bytes = (63 << 10) + 1}, uint32_t{1}),
              StatusIs(kInvalid, "allowed beside its static shared memory: 0 to 64512"));
  // HIP does not tell the size of a parameter beforehand; the library compares it at the launch.
  EXPECT_THAT(stream_->Launch(kernel, {}, uint64_t{1}),
              StatusIs(kInvalid, "hipModuleLaunchKernel: " +
                                     Said("invalid argument", "hipErrorInvalidValue")));
  ASSERT_OK(stream_->Synchronize());
}

TEST_P(HipDeviceTest, EverythingHappensOnItsOwnDevice) {
  MakeStream(1);
  const Kernel affine = Affine();
  ASSERT_OK_AND_ASSIGN(const auto cell, DeviceBuffer::Create(*device_, 8));
  ASSERT_OK(stream_->Fill(cell.data(), 0, 8));
  ASSERT_OK(stream_->Launch(affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 1, 4}));
  uint64_t value = 0;
  ASSERT_OK(stream_->CopyToHost(&value, cell.data(), 8));
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(value, 4u);
}

TEST_P(HipDeviceTest, WrapsAnEmbeddersStream) {
  MakeStream();
  const Kernel affine = Affine();
  ASSERT_OK_AND_ASSIGN(const auto cell, DeviceBuffer::Create(*device_, 8));
  {
    ASSERT_OK_AND_ASSIGN(const auto wrapped, device_->WrapStream(stream_->native_handle()));
    EXPECT_EQ(wrapped->native_handle(), stream_->native_handle());
    ASSERT_OK(wrapped->Fill(cell.data(), 0, 8));
    ASSERT_OK(wrapped->Launch(affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 1, 4}));
  }
  EXPECT_EQ(fake_.counts().streams, 1);
  uint64_t value = 0;
  ASSERT_OK(stream_->CopyToHost(&value, cell.data(), 8));
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(value, 4u);
  EXPECT_THAT(device_->WrapStream(nullptr), StatusIs(kInvalid, "default stream"));
}

// A fault takes the context with it; the fixture's counts are of a machine that was reset.
TEST_P(HipDeviceTest, AfterAFaultEverythingFailsWithIt) {
  MakeStream();
  ASSERT_OK_AND_ASSIGN(const auto module, device_->Load(Image({"gfx942"})));
  ASSERT_OK_AND_ASSIGN(const Kernel fault, module->Find(testing::kProbeFault));
  ASSERT_OK_AND_ASSIGN(auto other, device_->CreateStream());
  ASSERT_OK(stream_->BeginCapture());
  ASSERT_OK(stream_->Launch(fault, {}, testing::ProbeFaultArgs{}));
  ASSERT_OK_AND_ASSIGN(auto graph, stream_->EndCapture());
  ASSERT_OK(graph->Replay(*stream_));
  const std::string name = Said("unspecified launch failure", "hipErrorLaunchFailure");
  EXPECT_THAT(stream_->Synchronize(), StatusIs(kInternal, name));
  EXPECT_THAT(stream_->Query(), StatusIs(kInternal, name));
  EXPECT_THAT(graph->Replay(*stream_), StatusIs(kInternal, name));
  EXPECT_THAT(stream_->BeginCapture(), StatusIs(kInternal, name));
  EXPECT_THAT(other->Synchronize(), StatusIs(kInternal, name));
  EXPECT_THAT(device_->Allocate(8), StatusIs(kInternal, name));
  EXPECT_THAT(device_->AllocateMapped(8), StatusIs(kInternal, name));
  EXPECT_THAT(device_->FreeBytes(), StatusIs(kInternal, name));
  EXPECT_THAT(device_->CreateStream(), StatusIs(kInternal, name));
  EXPECT_THAT(device_->Load(Image({"gfx942"})), StatusIs(kInternal, name));
  ::testing::internal::CaptureStderr();
  graph = nullptr;
  other = nullptr;
  stream_ = nullptr;
  device_ = nullptr;
  // Destructors say what they could not do, and go on.
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("reprise: destroying a captured graph: INTERNAL: "));
  fake_.Reset();
}

}  // namespace
}  // namespace reprise::runtime
