// SPDX-License-Identifier: Apache-2.0
// Runs inside a limited container. For each way in which programs load libcuda, it prints what
// cuInit returns. The driver of these tests has no functions, so every result is the limiter's.
//   reach          tries every way, and prints a line for each: NAME RESULT, or NAME and the reason
//   reach NAME     loads the library, and prints the line under that name
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int print_result(const char* name, void* library) {
  int (*init)(unsigned) = library ? (int (*)(unsigned))dlsym(library, "cuInit") : NULL;
  if (init)
    printf("%s %d\n", name, init(0));
  else
    printf("%s: %s\n", name, dlerror());
  return fflush(stdout);
}

static void run(const char* program, const char* name, char** environment) {
  const pid_t child = fork();
  if (child == 0) {
    char* arguments[] = {(char*)program, (char*)name, NULL};
    execve(program, arguments, environment);
    printf("%s: %s does not run\n", name, program);
    fflush(stdout);
    _exit(1);
  }
  waitpid(child, NULL, 0);
}

int main(int argc, char** argv) {
  if (argc == 2) return print_result(argv[1], dlopen("libcuda.so.1", RTLD_NOW));
  print_result("dlopen", dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
  print_result("deepbind", dlopen("libcuda.so.1", RTLD_LAZY | RTLD_DEEPBIND));
  print_result("dlmopen", dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW));
  print_result("unversioned", dlopen("libcuda.so", RTLD_NOW));
  print_result("path", dlopen("/usr/local/cuda/compat/libcuda.so.1", RTLD_NOW));
  print_result("directory", dlopen("/usr/lib/x86_64-linux-gnu/libcuda.so.1", RTLD_NOW));
  char* search[] = {"LD_LIBRARY_PATH=/opt/own:/dev/tessera/real", NULL};
  char* nothing[] = {NULL};
  run("/bin/reach", "LD_LIBRARY_PATH", search);
  run("/bin/reach", "env-i", nothing);
  run("/bin/reach-setuid", "setuid", search);
  run("/bin/reach-rpath", "rpath", nothing);
  run("/bin/reach-static", "static", nothing);
  return 0;
}
