// SPDX-License-Identifier: Apache-2.0
// Preloaded into crun where root may not raise limits: crun asks for unlimited locked memory before
// it loads the program of its device rules, which kernels since 5.11 do not need.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/resource.h>

int setrlimit(__rlimit_resource_t resource, const struct rlimit* limit) {
  int (*real)(__rlimit_resource_t, const struct rlimit*) = dlsym(RTLD_NEXT, "setrlimit");
  const int result = real(resource, limit);
  return resource == RLIMIT_MEMLOCK ? 0 : result;
}
