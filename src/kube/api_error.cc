// SPDX-License-Identifier: Apache-2.0
#include "src/kube/api_error.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/strings.h"

namespace tessera::kube {
namespace {

// How much of a proxy's text an error quotes.
constexpr size_t kMaxQuotedBytes = 200;

// The text with which servers written in Go answer plain HTTP on a TLS port.
constexpr std::string_view kWantsTls = "Client sent an HTTP request to an HTTPS server";

Code CodeOf(int http_status, std::string_view reason) {
  if (reason == "AlreadyExists") return Code::kAlreadyExists;
  if (reason == "Expired" || reason == "Gone") return Code::kOutOfRange;
  if (reason == "Timeout") return Code::kDeadlineExceeded;
  static constexpr std::pair<int, Code> kCodes[] = {
      {400, Code::kInvalidArgument},   {401, Code::kUnauthenticated},
      {403, Code::kPermissionDenied},  {404, Code::kNotFound},
      {409, Code::kAborted},           {410, Code::kOutOfRange},
      {415, Code::kInvalidArgument},   {422, Code::kInvalidArgument},
      {429, Code::kResourceExhausted}, {500, Code::kInternal},
      {502, Code::kUnavailable},       {503, Code::kUnavailable},
      {504, Code::kDeadlineExceeded},
  };
  for (const auto& [status, code] : kCodes) {
    if (status == http_status) return code;
  }
  return Code::kUnknown;
}

std::optional<ServerStatus> StatusIn(const net::Response& response) {
  if (EncodingOf(response.headers.Get("Content-Type")) == Encoding::kProtobuf) {
    const auto envelope = OpenEnvelope(response.body);
    if (!envelope.ok() || envelope->kind != "Status") return std::nullopt;
    return ReadStatusMessage(envelope->message);
  }
  const auto body = ParseJson(response.body);
  return body.ok() ? ReadStatus(*body) : std::nullopt;
}

Duration Bounded(int64_t seconds) {
  return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, 300));
}

// The manager in `conflict with "kubectl-edit" using apps/v1`; the whole text if it has another
// form.
std::string_view ManagerIn(std::string_view message) {
  const size_t begin = message.find('"');
  const size_t end = begin == std::string_view::npos ? begin : message.find('"', begin + 1);
  return end == std::string_view::npos ? message : message.substr(begin + 1, end - begin - 1);
}

// Built from the conflicts, because the server's own message has several lines.
std::string ConflictText(const std::vector<ServerStatus::FieldConflict>& conflicts) {
  std::string text;
  for (const auto& conflict : conflicts) {
    text += fmt::format("{}\"{}\" manages {}", text.empty() ? "" : ", ",
                        ManagerIn(conflict.message), conflict.field);
  }
  return text + ": remove these fields from the applied object, or take them over with force";
}

}  // namespace

Status ErrorOf(const ServerStatus& server_status, int http_status) {
  if (server_status.code != 0) http_status = server_status.code;
  if (!server_status.conflicts.empty()) {
    return Error(Code::kAborted, "{} ({}, HTTP {})", ConflictText(server_status.conflicts),
                 server_status.reason, http_status);
  }
  return Error(CodeOf(http_status, server_status.reason), "{} ({}{}HTTP {})", server_status.message,
               server_status.reason, server_status.reason.empty() ? "" : ", ", http_status);
}

Status ErrorOf(const net::Response& response) {
  if (const auto server_status = StatusIn(response))
    return ErrorOf(*server_status, response.status);
  const std::string_view words = Trim(std::string_view(response.body).substr(0, kMaxQuotedBytes));
  const bool wants_tls = response.status == 400 && words.starts_with(kWantsTls);
  const Code code = wants_tls ? Code::kFailedPrecondition : CodeOf(response.status, "");
  return Error(code, "{} (HTTP {} {})",
               words.empty() ? "the response is not from the API server" : words, response.status,
               net::ReasonPhrase(response.status));
}

bool IsApiStatus(const net::Response& response) { return StatusIn(response).has_value(); }

std::optional<Duration> RetryAfter(const net::Response& response) {
  const auto seconds = ParseInt(Trim(response.headers.Get("Retry-After")));
  if (!seconds.ok()) return std::nullopt;
  return Bounded(*seconds);
}

std::optional<Duration> RetryAfter(const ServerStatus& server_status) {
  if (!server_status.retry_after_seconds) return std::nullopt;
  return Bounded(*server_status.retry_after_seconds);
}

}  // namespace tessera::kube
