// SPDX-License-Identifier: Apache-2.0
// Defines the functions of the C++ runtime that std::string, std::mutex and new use. So the library
// does not need the runtime, and programs built with an old runtime can load it. A static libstdc++
// would need the newest glibc and make the library four times as large. A throw ends the program;
// the only possible cause is a lack of memory for a path.
#include <cstddef>
#include <cstdlib>
#include <new>

namespace std {

[[noreturn]] void __throw_bad_alloc() { abort(); }
[[noreturn]] void __throw_logic_error(const char*) { abort(); }
[[noreturn]] void __throw_length_error(const char*) { abort(); }
[[noreturn]] void __throw_out_of_range_fmt(const char*, ...) { abort(); }
[[noreturn]] void __throw_system_error(int) { abort(); }
[[noreturn]] void __throw_bad_array_new_length() { abort(); }

const nothrow_t nothrow{};

}  // namespace std

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
