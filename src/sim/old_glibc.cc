// SPDX-License-Identifier: Apache-2.0
// Makes a library or program run on glibc 2.17 and later, because container images may be old.
//
// When a function gets a new symbol version, glibc keeps the old version, but the linker binds
// programs to the new version. This file has a hidden definition of each such function, which calls
// the old version. It also implements functions newer than 2.17. A number before a group of
// functions is the glibc version that has changed or added them. The definitions also serve the C++
// runtime, which therefore must be static. The linker drops unused definitions (--gc-sections). A
// test compares the result with glibc 2.17.
//
// Builds with sanitizers do not use this file, because sanitizers define some of these functions
// themselves.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#define OLD(name) __asm__(".symver old_" #name "," #name "@GLIBC_2.2.5")
constexpr int kStatVersion = 1;  // __xstat's version of struct stat
#elif defined(__aarch64__)
#define OLD(name) __asm__(".symver old_" #name "," #name "@GLIBC_2.17")
constexpr int kStatVersion = 0;
#endif

#pragma GCC visibility push(hidden)
extern "C" {

#pragma GCC visibility push(default)
int __xstat(int version, const char* path, struct stat* status);
int __lxstat(int version, const char* path, struct stat* status);
int __fxstat(int version, int file, struct stat* status);
int __xmknod(int version, const char* path, mode_t mode, dev_t* device);
void* old_dlopen(const char* path, int flags);
void* old_dlsym(void* library, const char* name);
char* old_dlerror();
int old_dladdr(const void* address, Dl_info* info);
int old_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                       void* argument);
int old_pthread_detach(pthread_t thread);
int old_pthread_join(pthread_t thread, void** result);
int old_pthread_once(pthread_once_t* once, void (*run)());
int old_pthread_key_create(pthread_key_t* key, void (*end)(void*));
int old_pthread_key_delete(pthread_key_t key);
int old_pthread_setspecific(pthread_key_t key, const void* value);
void* old_pthread_getspecific(pthread_key_t key);
int old_pthread_rwlock_rdlock(pthread_rwlock_t* lock);
int old_pthread_rwlock_wrlock(pthread_rwlock_t* lock);
int old_pthread_rwlock_unlock(pthread_rwlock_t* lock);
int old___libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                          void (*fini)(), void (*loader_fini)(), void* stack_end);
#pragma GCC visibility pop
OLD(dlopen);
OLD(dlsym);
OLD(dlerror);
OLD(dladdr);
OLD(pthread_create);
OLD(pthread_detach);
OLD(pthread_join);
OLD(pthread_once);
OLD(pthread_key_create);
OLD(pthread_key_delete);
OLD(pthread_setspecific);
OLD(pthread_getspecific);
OLD(pthread_rwlock_rdlock);
OLD(pthread_rwlock_wrlock);
OLD(pthread_rwlock_unlock);
OLD(__libc_start_main);

// 2.33: older headers have inline functions that call __xstat with the version of struct stat.
int stat(const char* path, struct stat* status) { return __xstat(kStatVersion, path, status); }
int lstat(const char* path, struct stat* status) { return __lxstat(kStatVersion, path, status); }
int fstat(int file, struct stat* status) { return __fxstat(kStatVersion, file, status); }
int mknod(const char* path, mode_t mode, dev_t device) {
  return __xmknod(0, path, mode, &device);  // its version is 0 everywhere
}

// 2.34: libdl and libpthread became part of libc.
void* dlopen(const char* path, int flags) { return old_dlopen(path, flags); }
void* dlsym(void* library, const char* name) { return old_dlsym(library, name); }
char* dlerror() { return old_dlerror(); }
int dladdr(const void* address, Dl_info* info) { return old_dladdr(address, info); }
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  return old_pthread_create(thread, attributes, run, argument);
}
int pthread_detach(pthread_t thread) { return old_pthread_detach(thread); }
int pthread_join(pthread_t thread, void** result) { return old_pthread_join(thread, result); }
int pthread_once(pthread_once_t* once, void (*run)()) { return old_pthread_once(once, run); }
int pthread_key_create(pthread_key_t* key, void (*end)(void*)) {
  return old_pthread_key_create(key, end);
}
int __pthread_key_create(pthread_key_t* key, void (*end)(void*)) {
  return old_pthread_key_create(key, end);
}
int pthread_key_delete(pthread_key_t key) { return old_pthread_key_delete(key); }
void* pthread_getspecific(pthread_key_t key) { return old_pthread_getspecific(key); }
// The header declares that the function does not read `value`, so GCC warns that it is
// uninitialized.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
int pthread_setspecific(pthread_key_t key, const void* value) {
  return old_pthread_setspecific(key, value);
}
#pragma GCC diagnostic pop
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) { return old_pthread_rwlock_rdlock(lock); }
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) { return old_pthread_rwlock_wrlock(lock); }
int pthread_rwlock_unlock(pthread_rwlock_t* lock) { return old_pthread_rwlock_unlock(lock); }

// 2.34: if `init` is null, newer C libraries call the constructors of the program; older ones leave
// them to `init`.
extern void (*__init_array_start[])(int, char**, char**);
extern void (*__init_array_end[])(int, char**, char**);
static void CallConstructors(int argc, char** argv, char** environment) {
  for (auto* each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(argc, argv, environment);
  }
}
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*)(),
                      void (*fini)(), void (*loader_fini)(), void* stack_end) {
  return old___libc_start_main(main, argc, argv, reinterpret_cast<void (*)()>(CallConstructors),
                               fini, loader_fini, stack_end);
}

// 2.25; arc4random: 2.36.
ssize_t getrandom(void* buffer, size_t size, unsigned flags) {
  return ::syscall(SYS_getrandom, buffer, size, flags);
}
int getentropy(void* buffer, size_t size) {
  if (size > 256) return errno = EIO, -1;
  return getrandom(buffer, size, 0) == static_cast<ssize_t>(size) ? 0 : -1;
}
uint32_t arc4random() {
  uint32_t number = 0;
  if (getentropy(&number, sizeof(number)) != 0) ::abort();
  return number;
}

// 2.32. False is always safe: the C++ runtime then uses atomic operations.
char __libc_single_threaded = 0;

// 2.35. The C++ runtime finds exception handlers with this function. There are no handlers here, so
// a throw ends the process.
int _dl_find_object(void*, dl_find_object*) { return -1; }

// 2.18. Destructors of thread_local variables, in reverse order.
struct ThreadExitCall {
  void (*destroy)(void*);
  void* object;
  ThreadExitCall* next;
};
static pthread_key_t thread_exit_calls;
static pthread_once_t thread_exit_calls_once = PTHREAD_ONCE_INIT;
static void RunThreadExitCalls(void* list) {
  for (auto* each = static_cast<ThreadExitCall*>(list); each != nullptr;) {
    ThreadExitCall* const next = each->next;
    each->destroy(each->object);
    ::free(each);
    each = next;
  }
}
int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void*) {
  pthread_once(&thread_exit_calls_once,
               [] { pthread_key_create(&thread_exit_calls, RunThreadExitCalls); });
  auto* const entry = static_cast<ThreadExitCall*>(::malloc(sizeof(ThreadExitCall)));
  if (entry == nullptr) return -1;
  *entry = {destroy, object, static_cast<ThreadExitCall*>(pthread_getspecific(thread_exit_calls))};
  return pthread_setspecific(thread_exit_calls, entry);
}

}  // extern "C"
#pragma GCC visibility pop
