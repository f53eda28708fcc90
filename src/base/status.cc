// SPDX-License-Identifier: Apache-2.0
#include "src/base/status.h"

#include <sysexits.h>

#include <array>
#include <cstdio>
#include <cstring>

namespace tessera {
namespace {

constexpr std::array<CodeInfo, 17> kCodes = {{
    {Code::kOk, "OK", EX_OK, 200},
    {Code::kCancelled, "CANCELLED", EX_TEMPFAIL, 499},
    {Code::kUnknown, "UNKNOWN", EX_SOFTWARE, 500},
    {Code::kInvalidArgument, "INVALID_ARGUMENT", EX_USAGE, 400},
    {Code::kDeadlineExceeded, "DEADLINE_EXCEEDED", EX_TEMPFAIL, 504},
    {Code::kNotFound, "NOT_FOUND", EX_NOINPUT, 404},
    {Code::kAlreadyExists, "ALREADY_EXISTS", EX_CANTCREAT, 409},
    {Code::kPermissionDenied, "PERMISSION_DENIED", EX_NOPERM, 403},
    {Code::kResourceExhausted, "RESOURCE_EXHAUSTED", EX_TEMPFAIL, 429},
    {Code::kFailedPrecondition, "FAILED_PRECONDITION", EX_CONFIG, 400},
    {Code::kAborted, "ABORTED", EX_TEMPFAIL, 409},
    {Code::kOutOfRange, "OUT_OF_RANGE", EX_DATAERR, 400},
    {Code::kUnimplemented, "UNIMPLEMENTED", EX_SOFTWARE, 501},
    {Code::kInternal, "INTERNAL", EX_SOFTWARE, 500},
    {Code::kUnavailable, "UNAVAILABLE", EX_UNAVAILABLE, 503},
    {Code::kDataLoss, "DATA_LOSS", EX_DATAERR, 500},
    {Code::kUnauthenticated, "UNAUTHENTICATED", EX_NOPERM, 401},
}};

Code CodeFromErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Code::kResourceExhausted;
    case ETIMEDOUT:
      return Code::kDeadlineExceeded;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EAGAIN:
      return Code::kUnavailable;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return Code::kInvalidArgument;
    default:
      return Code::kUnknown;
  }
}

}  // namespace

const CodeInfo& InfoOf(Code code) {
  const auto index = static_cast<size_t>(code);
  return index < kCodes.size() ? kCodes[index] : kCodes[static_cast<size_t>(Code::kUnknown)];
}

Code CodeFromName(std::string_view name) {
  for (const CodeInfo& info : kCodes) {
    if (info.name == name) return info.code;
  }
  return Code::kUnknown;
}

Status::Status(Code code, std::string message)
    : rep_(std::make_shared<Rep>(Rep{code, std::move(message)})) {
  TESSERA_CHECK(code != Code::kOk);
}

Status Status::FromErrno(std::string_view operation, int error) {
  return Status(CodeFromErrno(error), fmt::format("{}: {}", operation, ::strerror(error)));
}

const std::string& Status::message() const {
  static const std::string empty;
  return rep_ ? rep_->message : empty;
}

Status Status::Annotate(std::string_view context) const& {
  if (ok()) return *this;
  return Status(rep_->code, fmt::format("{}: {}", context, rep_->message));
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return fmt::format("{}: {}", InfoOf(rep_->code).name, rep_->message);
}

void CheckFailed(const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: broken invariant: %.*s\n", file, line,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace tessera
