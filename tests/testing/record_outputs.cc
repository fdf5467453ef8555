// SPDX-License-Identifier: Apache-2.0
// reprise_record_outputs: prints the tokens and log-probabilities that the engine produces, to the
// bit, on every device for every model, dtype, linear policy and two block sizes. A developer's
// program: what two builds print is compared with `diff`, to show that a change of the code changed
// no output. Built with the tests, never run by them. record_session.h says what the lines mean.
//
//   reprise_record_outputs --devices host > before.txt
//   reprise_record_outputs --devices cuda --source-dir . --presets llama-3.2-1b > before_cuda.txt
//
// Outputs of a GPU depend on how many multiprocessors it has, those of the host on the CPU's vector
// width and on the C library, so only runs on machines of one kind are comparable. The lines that
// start with '#' say what the machine was.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/decode_engine.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "tests/testing/record_plan.h"
#include "tests/testing/record_script.h"
#include "tests/testing/source_dir.h"
#include "tests/testing/tiny_model.h"

namespace reprise::testing {
namespace {

using Names = std::vector<std::string>;

constexpr char kUsage[] =
    "usage: reprise_record_outputs [--devices LIST] [--models LIST] [--presets LIST]\n"
    "                              [--source-dir DIR]\n"
    "Prints the tokens and log-probabilities of a fixed workload, for diff.\n"
    "  --devices LIST    of host, cuda, mma, mfma, wmma (emulated GPUs) and hip (over the fake\n"
    "                    library); default: all that are available\n"
    "  --models LIST     of the folders in tests/fixtures, byte-llama and the random models\n"
    "                    head-64, head-128, head-256 and vocab-4201, or none; default: all\n"
    "  --presets LIST    shapes with random weights, on host and cuda, or none; default:\n"
    "                    llama-3.2-1b on cuda alone\n"
    "  --source-dir DIR  the source tree, for its fixtures; default: where this was built\n"
    "Exit code: 0; 1 when a run failed; 2 when a flag is wrong.\n";
constexpr char kDefaultPreset[] = "llama-3.2-1b";

struct Flags {
  std::optional<Names> devices, models, presets;
  std::string source_dir = SourceDir();
  bool help = false;
};

absl::StatusOr<Flags> ParseFlags(const Names& args) {
  Flags flags;
  const std::pair<std::string_view, std::optional<Names>*> lists[] = {
      {"--devices", &flags.devices}, {"--models", &flags.models}, {"--presets", &flags.presets}};
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& flag = args[i];
    if (flag == "--help") {
      flags.help = true;
      return flags;
    }
    const auto* list =
        std::ranges::find(lists, flag, [](const auto& entry) { return entry.first; });
    if (list == std::end(lists) && flag != "--source-dir")
      return absl::InvalidArgumentError(absl::StrCat(
          "got \"", flag, "\"; allowed: --devices, --models, --presets, --source-dir, --help"));
    if (++i == args.size() || args[i].empty())
      return absl::InvalidArgumentError(absl::StrCat(flag, ": got no value"));
    if (flag == "--source-dir") {
      flags.source_dir = args[i];
    } else {
      const bool none = args[i] == "none" && flag != "--devices";
      *list->second = none ? Names() : absl::StrSplit(args[i], ',');
    }
  }
  return flags;
}

// Those of `all` that are named, in the order of `all`; all of them when nothing is.
// Errors: InvalidArgument names what is not among them.
template <typename T>
absl::StatusOr<std::vector<T>> Choose(const char* flag, const std::optional<Names>& names,
                                      const std::vector<T>& all) {
  if (!names.has_value()) return all;
  Names allowed;
  std::vector<T> chosen;
  for (const T& entry : all) {
    allowed.push_back(entry.name);
    if (std::ranges::count(*names, entry.name) > 0) chosen.push_back(entry);
  }
  for (const std::string& name : *names)
    if (std::ranges::count(allowed, name) == 0)
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": got \"", name, "\"; allowed: ", absl::StrJoin(allowed, ", ")));
  return chosen;
}

struct Plan {
  std::vector<RecordedDevice> devices = {};
  bool may_skip_devices = false;
  std::vector<RecordedModel> models = {}, presets = {};
  bool default_presets = false;  // on cuda alone, where they fit
};

absl::StatusOr<Plan> MakePlan(const Flags& flags) {
  Plan plan{.may_skip_devices = !flags.devices.has_value(),
            .default_presets = !flags.presets.has_value()};
  REPRISE_ASSIGN_OR_RETURN(plan.devices, Choose("--devices", flags.devices, AllRecordedDevices()));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<RecordedModel> models,
                           AllRecordedModels(flags.source_dir));
  REPRISE_ASSIGN_OR_RETURN(plan.models, Choose("--models", flags.models, models));
  REPRISE_ASSIGN_OR_RETURN(
      plan.presets,
      Choose("--presets", flags.presets.value_or(Names{kDefaultPreset}), AllRecordedPresets()));
  return plan;
}

absl::Status RecordEngine(const RecordedDevice& choice, runtime::Device& device,
                          const RecordedModel& model, const RecordedEngine& recorded) {
  const engine::DecodeEngineOptions& options = recorded.options;
  REPRISE_ASSIGN_OR_RETURN(const auto engine,
                           engine::DecodeEngine::Create(device, model.source, options));
  PlayScript(*engine,
             absl::StrCat("device=", choice.name, " model=", model.name,
                          " dtype=", std::string(runtime::NameOf(options.dtype)),
                          " linear=", std::string(engine::NameOf(options.linear)),
                          " block=", options.block_size),
             recorded.script, stdout);
  return absl::OkStatus();
}

absl::Status RecordModel(const RecordedDevice& choice, runtime::Device& device,
                         RecordedModel model) {
  const auto begin = std::chrono::steady_clock::now();
  const TemporaryDirectory directory;
  if (model.shape.has_value()) {
    REPRISE_ASSIGN_OR_RETURN(model.source.directory,
                             WriteTinyModel(*model.shape, directory.path()));
  }
  for (const RecordedEngine& engine : RecordedEnginesOf(choice, model))
    REPRISE_RETURN_IF_ERROR(RecordEngine(choice, device, model, engine));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr, "%s %s: %.1f s\n", choice.name.c_str(), model.name.c_str(), took.count());
  return absl::OkStatus();
}

absl::Status RecordPresets(const RecordedDevice& choice, runtime::Device& device,
                           const Plan& plan) {
  const bool wanted = choice.is_gpu || (choice.name == "host" && !plan.default_presets);
  if (!wanted) return absl::OkStatus();
  for (const RecordedModel& preset : plan.presets) {
    const absl::Status status = RecordModel(choice, device, preset);
    if (!absl::IsResourceExhausted(status) || !plan.default_presets) {
      REPRISE_RETURN_IF_ERROR(status);
      continue;
    }
    std::printf("# device=%s model=%s does not fit\n", choice.name.c_str(), preset.name.c_str());
    std::fprintf(stderr, "%s %s: %s\n", choice.name.c_str(), preset.name.c_str(),
                 status.ToString().c_str());
  }
  return absl::OkStatus();
}

absl::Status RecordDevice(const RecordedDevice& choice, const Plan& plan) {
  auto device = choice.create();
  if (!device.ok() && plan.may_skip_devices) {
    std::fprintf(stderr, "%s: left out, because %s\n", choice.name.c_str(),
                 device.status().ToString().c_str());
    return absl::OkStatus();
  }
  REPRISE_RETURN_IF_ERROR(device.status());
  const runtime::DeviceProperties& properties = (*device)->properties();
  std::printf("# device=%s name=\"%s\" architecture=%s multiprocessors=%d\n", choice.name.c_str(),
              properties.name.c_str(), properties.architecture.c_str(),
              properties.num_multiprocessors);
  for (const RecordedModel& model : plan.models)
    REPRISE_RETURN_IF_ERROR(RecordModel(choice, **device, model));
  return RecordPresets(choice, **device, plan);
}

// A refused step throws; everything else is a status.
absl::Status RecordDeviceOrThrow(const RecordedDevice& choice, const Plan& plan) {
  try {
    return RecordDevice(choice, plan);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

int Run(const Names& args) {
  const auto fail = [](const std::string& message, int code) {
    std::fprintf(stderr, "reprise_record_outputs: %s\n", message.c_str());
    return code;
  };
  const auto flags = ParseFlags(args);
  if (!flags.ok()) return fail(std::string(flags.status().message()), 2);
  if (flags->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const auto plan = MakePlan(*flags);
  if (!plan.ok()) return fail(std::string(plan.status().message()), 2);
  for (const RecordedDevice& choice : plan->devices) {
    const absl::Status status = RecordDeviceOrThrow(choice, *plan);
    if (!status.ok()) return fail(absl::StrCat(choice.name, ": ", status.ToString()), 1);
  }
  return std::fflush(stdout) == 0 ? 0 : fail("the output could not be written", 1);
}

}  // namespace
}  // namespace reprise::testing

int main(int argc, char** argv) { return reprise::testing::Run({argv + 1, argv + argc}); }
