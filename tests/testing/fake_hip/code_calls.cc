// SPDX-License-Identifier: Apache-2.0
// The fake HIP library: modules, functions and launches.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tests/testing/fake_hip/fake_hip_library.h"

namespace reprise::testing::fake_hip {

FAKE_HIP_EXPORT int hipModuleLoadData(void** module, const void* image) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipModuleLoadData);
  if (std::memcmp(image, kFakeHipMagic, sizeof(kFakeHipMagic)) != 0)
    return call.Return(kInvalidImage);
  const auto* code = static_cast<const FakeHipCodeObject*>(image);
  const std::string device = call.state.machine.architecture;
  if (code->architecture != nullptr && code->architecture != device.substr(0, device.find(':')))
    return call.Return(call.state.machine.no_code_error);
  auto made = std::make_unique<Module>();
  made->device = ThisThread().device;
  made->code = code;
  *module = made.get();
  call.state.modules[*module] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipModuleUnload(void* module) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipModuleUnload);
  if (call.state.modules.count(module) == 0) return call.Return(kInvalidHandle);
  std::erase_if(call.state.functions,
                [module](const auto& entry) { return entry.second->module == module; });
  call.state.modules.erase(module);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipModuleGetFunction(void** function, void* module, const char* name) {
  FAKE_HIP_CALL(hipModuleGetFunction);
  const auto it = call.state.modules.find(module);
  if (it == call.state.modules.end()) return call.Return(kInvalidHandle);
  const FakeHipCodeObject& code = *it->second->code;
  for (size_t i = 0; i < code.num_kernels; ++i) {
    if (std::strcmp(code.kernels[i].name, name) != 0) continue;
    auto made = std::make_unique<Function>();
    made->module = it->second.get();
    made->kernel = &code.kernels[i];
    *function = made.get();
    call.state.functions[*function] = std::move(made);
    return call.Return(kSuccess);
  }
  return call.Return(kNotFound);
}

FAKE_HIP_EXPORT int hipFuncGetAttribute(int* value, int attribute, void* function) {
  FAKE_HIP_CALL(hipFuncGetAttribute);
  const auto it = call.state.functions.find(function);
  if (it == call.state.functions.end()) return call.Return(kInvalidHandle);
  if (attribute != 1) return call.Return(kInvalidValue);  // HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
  *value = static_cast<int>(it->second->kernel->static_shared_bytes);
  return call.Return(kSuccess);
}

// Arguments come in `extra`: {1, buffer, 2, &bytes, 3}. (The real library also takes an array of
// pointers; it knows sizes from the code object, which this one does not.)
FAKE_HIP_EXPORT int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y,
                                          unsigned grid_z, unsigned block_x, unsigned block_y,
                                          unsigned block_z, unsigned shared_bytes, void* stream,
                                          void** params, void** extra) {
  FAKE_HIP_CALL(hipModuleLaunchKernel);
  const auto key = [extra](int i) { return reinterpret_cast<size_t>(extra[i]); };
  if (params != nullptr || extra == nullptr || key(0) != 1 || key(2) != 2 || key(4) != 3)
    return call.Return(kInvalidValue);
  const auto it = call.state.functions.find(function);
  const auto found = call.Find(stream);
  if (it == call.state.functions.end() || found == nullptr) return call.Return(kInvalidHandle);
  if (found->device() != it->second->module->device) return call.Return(kInvalidHandle);
  if (grid_x == 0 || grid_y == 0 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 ||
      block_z != 1)
    return call.Return(kInvalidConfiguration);
  const FakeHipKernel& kernel = *it->second->kernel;
  const auto* args = static_cast<const std::byte*>(extra[1]);
  const size_t args_bytes = *static_cast<const size_t*>(extra[3]);
  if (kernel.args_bytes != 0 && kernel.args_bytes != args_bytes) return call.Return(kInvalidValue);
  if (shared_bytes + kernel.static_shared_bytes >
      static_cast<size_t>(call.state.machine.shared_bytes))
    return call.Return(kInvalidValue);
  FakeHipLaunch launch{.run = kernel.run,
                       .grid_x = grid_x,
                       .grid_y = grid_y,
                       .block = block_x,
                       .shared_bytes = shared_bytes,
                       .args = {args, args + args_bytes},
                       .first_block = call.state.num_launches++ * 104729};
  return call.Submit(stream, FakeHipNodeType::kKernel, std::move(launch));
}

}  // namespace reprise::testing::fake_hip
