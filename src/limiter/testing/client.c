// SPDX-License-Identifier: Apache-2.0
// A program that opens libcuda.so.1 with dlopen, and is linked statically, as a static PIE, or
// dynamically.
//
//   allocate BYTES             allocates device memory
//   launch COUNT [each]        launches the kernel `work`, and waits at the end or for each launch;
//                              prints the milliseconds of all launches, the milliseconds of the
//                              longest launch, and the number of threads
//
// Its exit code is the result of the first call that fails, or 0; 200: the library is missing; 201:
// the arguments are invalid.
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void* library;

#define FUNCTION(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(library, #name)

static int Allocate(size_t bytes) {
  FUNCTION(cuMemAlloc_v2, unsigned long long*, size_t);
  unsigned long long pointer = 0;
  return cuMemAlloc_v2(&pointer, bytes);
}

static long long Milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static int Threads(void) {
  DIR* tasks = opendir("/proc/self/task");
  int entries = 0;
  while (tasks != NULL && readdir(tasks) != NULL) ++entries;
  if (tasks != NULL) closedir(tasks);
  return entries - 2;  // without . and ..
}

static int Launch(int count, int waits_for_each) {
  static const char kPtx[] =
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n";
  FUNCTION(cuModuleLoadData, void**, const void*);
  FUNCTION(cuModuleGetFunction, void**, void*, const char*);
  FUNCTION(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
           unsigned, void*, void**, void**);
  FUNCTION(cuCtxSynchronize, void);
  void *module = NULL, *function = NULL;
  int result = cuModuleLoadData(&module, kPtx);
  if (result == 0) result = cuModuleGetFunction(&function, module, "work");
  const long long start = Milliseconds();
  long long longest = 0;
  for (int i = 0; i < count && result == 0; ++i) {
    const long long launched = Milliseconds();
    result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (Milliseconds() - launched > longest) longest = Milliseconds() - launched;
    if (result == 0 && waits_for_each) result = cuCtxSynchronize();
  }
  if (result == 0) result = cuCtxSynchronize();
  printf("%lld %lld %d\n", Milliseconds() - start, longest, Threads());
  return result;
}

int main(int argc, char** argv) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return 200;
  if (argc < 3) return 201;
  FUNCTION(cuInit, unsigned);
  FUNCTION(cuCtxCreate_v2, void**, unsigned, int);
  void* context = NULL;
  int result = cuInit(0);
  if (result == 0) result = cuCtxCreate_v2(&context, 0, 0);
  if (result != 0) return result;
  if (strcmp(argv[1], "allocate") == 0) return Allocate(strtoull(argv[2], NULL, 10));
  if (strcmp(argv[1], "launch") == 0) return Launch(atoi(argv[2]), argc > 3);
  return 201;
}
