// SPDX-License-Identifier: Apache-2.0
// A statically linked program that opens libcuda.so.1 and allocates the bytes of its argument. Its
// exit code is the result of the first call that fails, or 0; 200: the library is missing.
#include <dlfcn.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (argc != 2 || library == NULL) return 200;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  int (*create)(void**, unsigned, int) =
      (int (*)(void**, unsigned, int))dlsym(library, "cuCtxCreate_v2");
  int (*allocate)(unsigned long long*, size_t) =
      (int (*)(unsigned long long*, size_t))dlsym(library, "cuMemAlloc_v2");
  void* context = NULL;
  unsigned long long pointer = 0;
  int result = init(0);
  if (result == 0) result = create(&context, 0, 0);
  return result == 0 ? allocate(&pointer, strtoull(argv[1], NULL, 10)) : result;
}
