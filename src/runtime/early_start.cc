// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/early_start.h"

#include <cerrno>
#include <cstddef>
#include <string_view>

#include "api/names.h"
#include "src/runtime/program_search.h"
#include "src/runtime/raw_calls.h"

#if defined(__x86_64__)
// At entry the stack has argc, argv, the environment and the auxiliary vector, and no return
// address (System V ABI, "Process Initialization").
// The stack is aligned at entry; two pushes keep it aligned. The C library's _start reads rdx (a
// function to register with atexit), so the call must not lose it.
__asm__(
    ".text\n.globl tessera_start\n.type tessera_start, @function\ntessera_start:\n"
    "  mov %rsp, %rdi\n  push %rdx\n  push %rdx\n  call TesseraEarlyStart\n"
    "  pop %rdx\n  pop %rdx\n  jmp _start\n");
#elif defined(__aarch64__)
// The C library's _start reads x0 (a function to register with atexit). A call preserves x19.
__asm__(
    ".text\n.globl tessera_start\n.type tessera_start, %function\ntessera_start:\n"
    "  mov x19, x0\n  mov x0, sp\n  bl TesseraEarlyStart\n  mov x0, x19\n  b _start\n");
#endif

// A string_view literal knows its length; a conversion from char* would call strlen.
using std::literals::operator""sv;

namespace tessera::runtime {
namespace {

// Verbs that create a container or change its limits, and Tessera's own verbs.
constexpr std::string_view kHandledVerbs[] = {"create", "run", "update", "explain", "configure"};

// Replaces std::strlen: the C library selects its implementation (IFUNC) only at startup.
std::string_view View(const char* text) {
  size_t size = 0;
  while (text[size] != '\0') ++size;
  return {text, size};
}

bool Same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && Same({text.data(), prefix.size()}, prefix);
}

bool Contains(std::string_view text, std::string_view part) {
  for (; text.size() >= part.size(); text.remove_prefix(1)) {
    if (StartsWith(text, part)) return true;
  }
  return false;
}

const char* Variable(char** env, std::string_view name) {
  for (; *env != nullptr; ++env) {
    const std::string_view entry = View(*env);
    if (StartsWith(entry, name) && entry.size() > name.size() && entry[name.size()] == '=') {
      return *env + name.size() + 1;
    }
  }
  return nullptr;
}

// The option without its dashes; empty if `word` is not an option.
std::string_view OptionName(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return {};
  word.remove_prefix(word[1] == '-' ? 2 : 1);
  return word;
}

// Whether the directory of `log` has a stage (src/oci/stage.h). Returns true if it cannot be
// determined.
bool HasStageBeside(std::string_view log) {
  constexpr std::string_view kStage = "tessera";
  ProgramPath path;
  size_t dir = log.size();
  while (dir > 0 && log[dir - 1] != '/') --dir;
  if (dir + kStage.size() + 1 > sizeof(path)) return true;
  for (size_t i = 0; i < dir; ++i) path[i] = log[i];
  for (size_t i = 0; i <= kStage.size(); ++i) path[dir + i] = i < kStage.size() ? kStage[i] : '\0';
  // Any other error may hide a stage, so the exec is not passed through.
  return raw::Access(path, F_OK) != -ENOENT;
}

// `verb` is the index of "exec". Options before it are global options.
bool IsPassThroughExec(int argc, char** argv, int verb) {
  // Matches -p and --process, but also --pid-file, --preserve-fds and --process-label. Such a
  // command is treated as if it had a process file.
  bool may_have_process_file = false;
  for (int i = verb + 1; i < argc; ++i) {
    may_have_process_file = may_have_process_file || StartsWith(OptionName(View(argv[i])), "p"sv);
  }
  if (!may_have_process_file) return true;
  // "exec" could be the value of an option.
  if (View(argv[verb - 1])[0] == '-') return false;
  std::string_view log;
  for (int i = 1; i < verb; ++i) {
    const std::string_view option = OptionName(View(argv[i]));
    if (StartsWith(option, "log="sv)) log = {option.data() + 4, option.size() - 4};
    if (Same(option, "log"sv)) log = View(argv[i + 1]);
  }
  return !HasStageBeside(log);
}

// Tessera adds its own help and version to those of the low-level runtime.
constexpr std::string_view kHelpArguments[] = {"help", "--help", "-h", "--version"};

bool IsPassThrough(int argc, char** argv) {
  if (argc == 2) {
    for (const std::string_view word : kHelpArguments) {
      if (Same(View(argv[1]), word)) return false;
    }
  }
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = View(argv[i]);
    for (const std::string_view verb : kHandledVerbs) {
      if (Same(word, verb)) return false;
    }
  }
  for (int i = 1; i < argc; ++i) {
    if (Same(View(argv[i]), "exec"sv)) return IsPassThroughExec(argc, argv, i);
  }
  return true;
}

// Whether the configuration leaves the choice of the low-level runtime to the defaults. A file of
// 4 KiB or more counts as naming runtimes, because there is no memory to read it into.
bool UsesDefaultRuntimes(const char* config) {
  const long fd = raw::OpenToRead(config);
  if (fd < 0) return fd == -ENOENT || fd == -ENOTDIR;
  char text[4096];
  const long size = raw::Read(static_cast<int>(fd), text, sizeof(text));
  raw::Close(static_cast<int>(fd));
  return size >= 0 && size < static_cast<long>(sizeof(text)) &&
         !Contains({text, static_cast<size_t>(size)}, "runtimes"sv);
}

}  // namespace
}  // namespace tessera::runtime

void TesseraEarlyStart(long* stack) {
  using namespace tessera::runtime;  // NOLINT: a C name for the assembler.
  const int argc = static_cast<int>(stack[0]);
  char** argv = reinterpret_cast<char**>(stack + 1);
  char** env = argv + argc + 1;
  if (argc < 2 || !IsPassThrough(argc, argv)) return;
  const char* config = Variable(env, tessera::names::kEnvRuntimeConfig);
  if (config == nullptr || *config == '\0') config = tessera::names::kRuntimeConfigFile.data();
  if (!UsesDefaultRuntimes(config)) return;
  const char* variable = Variable(env, "PATH"sv);
  const std::string_view dirs = variable != nullptr ? View(variable) : std::string_view();
  ProgramPath path;
  for (const std::string_view name : kDefaultRuntimes) {
    if (!FindProgram(dirs, name, path) && !FindProgram(kUsualDirs, name, path)) {
      continue;
    }
    char* const own_name = argv[0];
    argv[0] = path;
    raw::Execute(path, argv, env);
    // execve returns only on an error, which main() reports when it executes the program again.
    argv[0] = own_name;
    return;
  }
}
