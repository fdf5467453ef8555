// SPDX-License-Identifier: Apache-2.0
// The functions of NVIDIA's driver that tools/profile/telemetry.cc opens, as a library of our own:
// device 1 lies at 0000:1b:00.0 and tells everything but its memory clock; device 0 lies where NVML
// knows nobody. Device 2 does not exist.
#include <cstdio>

namespace {
int num_open = 0;
int known_device = 0;
}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 100;
  return ordinal < 2 ? 0 : 101;
}
int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:1%c:00.0", device == 101 ? 'b' : 'a');
  return 0;
}

int nvmlInit_v2() {
  ++num_open;
  return 0;
}
int nvmlShutdown() { return --num_open >= 0 ? 0 : 1; }
int FakeNvmlNumOpen() { return num_open; }
const char* nvmlErrorString(int) { return "Not Found"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = &known_device;
  return bus_id[6] == 'b' ? 0 : 6;
}
int nvmlDeviceGetClockInfo(void* device, unsigned domain, unsigned* mhz) {
  *mhz = 1980;
  return device == &known_device && domain == 1 ? 0 : 3;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 512500;
  return device == &known_device ? 0 : 3;
}

}  // extern "C"
