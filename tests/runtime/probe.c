// SPDX-License-Identifier: Apache-2.0
// Runs inside a container and prints what it sees, a fact per line. The arguments are paths of
// device nodes. Built with -DPROBE_STATIC, the program needs no dynamic linker, and "--pause" makes
// it wait, so that it keeps a pod's namespaces.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#ifndef PROBE_STATIC
#include <dlfcn.h>
#endif

static void print_env(const char* name) {
  const char* value = getenv(name);
  printf("env %s=%s\n", name, value ? value : "(unset)");
}

static void print_file(const char* what, const char* path) {
  printf("%s %s\n", what, access(path, R_OK) == 0 ? "there" : "missing");
}

static void print_node(const char* path) {
  struct stat info;
  if (stat(path, &info) != 0) {
    printf("node %s: %s\n", path, strerror(errno));
    return;
  }
  // No driver has this device number, so an open that the cgroup allows fails with ENXIO.
  const int fd = open(path, O_RDWR);
  const char* result = fd >= 0 ? "opened" : errno == EPERM ? "forbidden" : "allowed";
  printf("node %s %u:%u mode %o %s\n", path, major(info.st_rdev), minor(info.st_rdev),
         info.st_mode & 07777, result);
}

#ifndef PROBE_STATIC
static void print_library(const char* name) {
  void* handle = dlopen(name, RTLD_NOW);
  printf("library %s %s\n", name, handle ? "loaded" : dlerror());
}

// The driver of these tests has no functions, so an answer is the limiter's.
static void print_limiter(void) {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = handle ? (int (*)(unsigned))dlsym(handle, "cuInit") : NULL;
  if (init) printf("cuInit %d\n", init(0));
}
#endif

int main(int argc, char** argv) {
#ifdef PROBE_STATIC
  if (argc == 2 && strcmp(argv[1], "--pause") == 0) return pause();
#else
  print_library("libcuda.so.1");
  print_library("libcuda.so");
  print_library("libnvidia-ml.so.1");
  print_library("libGLX_nvidia.so.0");
  print_limiter();
#endif
  for (int i = 1; i < argc; ++i) print_node(argv[i]);
  print_env("NVIDIA_VISIBLE_DEVICES");
  print_env("LD_LIBRARY_PATH");
  print_env("PATH");
  print_env("XDG_DATA_DIRS");
  print_env("__EGL_VENDOR_LIBRARY_DIRS");
  print_env("GBM_BACKENDS_PATH");
  print_file("vulkan driver", "/dev/tessera/share/vulkan/icd.d/nvidia_icd.json");
  print_file("gbm driver", "/dev/tessera/lib/gbm/nvidia-drm_gbm.so");
  printf("nvidia-smi %s\n", access("/dev/tessera/bin/nvidia-smi", X_OK) == 0 ? "there" : "missing");
  const int fd = open("/dev/tessera/lib/new", O_CREAT | O_WRONLY, 0644);
  printf("driver folder %s\n", fd >= 0 ? "writable" : "read only");
  const int library = open("/dev/tessera/lib/libcuda.so.1", O_WRONLY);
  printf("driver file %s\n", library >= 0 ? "writable" : strerror(errno));
  return 0;
}
