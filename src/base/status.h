// SPDX-License-Identifier: Apache-2.0
// Errors without exceptions. A function that can fail returns Status, or Result<T> if it has a
// value. Each layer adds its operation with Annotate(), so that the message names the object, the
// place and the remedy.
//
// Cost: an OK Status is one null pointer. Threads: any number, on separate objects.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

// The canonical codes of gRPC, with their numbers.
enum class Code {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// One table maps codes to names, exit codes and HTTP status.
struct CodeInfo {
  Code code;
  std::string_view name;  // "NOT_FOUND"; in camel case it is an Event's reason
  int exit_code;          // exit code of a program that fails with this error (sysexits.h)
  int http_status;
};
const CodeInfo& InfoOf(Code code);
// The code with this name; kUnknown for a name outside the table.
Code CodeFromName(std::string_view name);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // REQUIRES: code != kOk.
  Status(Code code, std::string message);

  static Status Ok() { return {}; }
  // `error` is a value of errno. The message is "operation: No such file or directory".
  static Status FromErrno(std::string_view operation, int error);

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  const std::string& message() const;

  // Prefixes the message of an error with "context: "; OK stays OK.
  Status Annotate(std::string_view context) const&;
  // "NOT_FOUND: /dev/nvidia0 is missing", or "OK".
  std::string ToString() const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

template <typename... Args>
Status Error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// A value or an error. Reading the value of an error aborts the program.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return Checked(), *value_; }
  const T& value() const& { return Checked(), *value_; }
  T&& value() && { return Checked(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T other) const& { return value_ ? *value_ : std::move(other); }

  Result Annotate(std::string_view context) && {
    if (ok()) return std::move(*this);
    return status_.Annotate(context);
  }

 private:
  void Checked() const;

  std::optional<T> value_;
  Status status_;
};

// Prints `message` with its location and aborts. For broken invariants, never for invalid input.
[[noreturn]] void CheckFailed(const char* file, int line, std::string_view message);

template <typename T>
void Result<T>::Checked() const {
  if (!ok()) CheckFailed(__FILE__, __LINE__, status_.ToString());
}

#define TESSERA_CHECK(condition)                                              \
  do {                                                                        \
    if (!(condition)) ::tessera::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#define TESSERA_CONCAT_(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_(a, b)

#define RETURN_IF_ERROR(expression)                              \
  do {                                                           \
    ::tessera::Status status_of_expression = (expression);       \
    if (!status_of_expression.ok()) return status_of_expression; \
  } while (false)

// ASSIGN_OR_RETURN(auto text, ReadFile(path));
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_(TESSERA_CONCAT(result_at_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                         \
  if (!result.ok()) return result.status();           \
  target = std::move(result).value()

}  // namespace tessera
