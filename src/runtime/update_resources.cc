// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/update_resources.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/base/file.h"
#include "src/formats/json.h"

namespace tessera::runtime {
namespace {

bool IsStandardInput(const char* resources) { return std::strcmp(resources, "-") == 0; }

// Handles "--resources FILE", where `resources` is an argument, and "--resources=FILE", where it is
// the end of an argument.
void ReplaceWithStandardInput(const char* resources, int argc, char** argv) {
  static char standard_input[] = "-";
  static char option[] = "--resources=-";
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == resources) argv[i] = standard_input;
    const bool is_end_of_argument =
        argv[i] < resources && resources <= argv[i] + std::strlen(argv[i]);
    if (is_end_of_argument) argv[i] = option;
  }
}

}  // namespace

Result<std::string> WithoutDeviceRules(std::string_view text) {
  ASSIGN_OR_RETURN(Json resources, ParseJson(text));
  if (!resources.is_object())
    return Error(Code::kInvalidArgument, "the resources are not a JSON object");
  resources.Erase("devices");
  return resources.Serialize();
}

Status StripDeviceRules(const char* resources, int argc, char** argv) {
  // Created before standard input is read, so that after an error here the low-level runtime can
  // still read it.
  const Fd copy(::memfd_create("resources", MFD_CLOEXEC));
  if (!copy.valid()) return Status::FromErrno("memfd_create", errno);
  ASSIGN_OR_RETURN(const std::string text,
                   IsStandardInput(resources) ? ReadFd(STDIN_FILENO) : ReadFile(resources));
  RETURN_IF_ERROR(WriteFd(copy.get(), WithoutDeviceRules(text).value_or(text)));
  if (::lseek(copy.get(), 0, SEEK_SET) != 0 || ::dup2(copy.get(), STDIN_FILENO) < 0) {
    return Status::FromErrno("standard input", errno);
  }
  if (!IsStandardInput(resources)) ReplaceWithStandardInput(resources, argc, argv);
  return Status::Ok();
}

}  // namespace tessera::runtime
