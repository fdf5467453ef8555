// SPDX-License-Identifier: Apache-2.0
// A library that carries HIP's name and lacks most of it: what a much older release would be.
extern "C" __attribute__((visibility("default"))) int hipGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}
