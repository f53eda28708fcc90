// SPDX-License-Identifier: Apache-2.0
#include "src/net/http.h"

#include <strings.h>

#include <algorithm>
#include <array>

#include "src/base/strings.h"

namespace tessera::net {
namespace {

bool EqualNames(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool IsAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// RFC 9110 §5.6.2.
bool IsToken(std::string_view text) {
  constexpr std::string_view kTokenSymbols = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return IsAlnum(c) || kTokenSymbols.find(c) != std::string_view::npos;
  });
}

bool IsControl(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

bool IsFieldValue(std::string_view text) {
  return std::none_of(text.begin(), text.end(), IsControl);
}

bool IsTarget(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) {
    return IsControl(c) || c == ' ' || c == '\t';
  });
}

void AppendField(std::string* out, std::string_view name, std::string_view value) {
  out->append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

std::string_view Headers::Get(std::string_view name) const {
  for (const Field& field : fields_) {
    if (EqualNames(field.first, name)) return field.second;
  }
  return {};
}

bool Headers::Has(std::string_view name) const {
  return std::any_of(fields_.begin(), fields_.end(),
                     [&](const Field& field) { return EqualNames(field.first, name); });
}

void Headers::Set(std::string_view name, std::string value) {
  std::erase_if(fields_, [&](const Field& field) { return EqualNames(field.first, name); });
  fields_.emplace_back(name, std::move(value));
}

void Headers::Add(std::string name, std::string value) {
  fields_.emplace_back(std::move(name), std::move(value));
}

std::string_view Request::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::optional<std::string> Request::Query(std::string_view name) const {
  const size_t query_start = target.find('?');
  if (query_start == std::string::npos) return std::nullopt;
  for (std::string_view pair : Split(std::string_view(target).substr(query_start + 1), '&')) {
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) != name) continue;
    if (equals == std::string_view::npos) return "";
    return PercentDecode(pair.substr(equals + 1)).value_or("");
  }
  return std::nullopt;
}

bool IsGetOrHead(const Request& request) {
  return request.method == "GET" || request.method == "HEAD";
}

Response TextResponse(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body)};
}

Response JsonResponse(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

Response MetricsResponse(std::string page) {
  return {200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, std::move(page)};
}

Result<std::string> SerializeRequest(const Request& request) {
  if (!IsToken(request.method)) {
    return Error(Code::kInvalidArgument, "\"{}\" is not an HTTP method", request.method);
  }
  if (!IsTarget(request.target)) {
    return Error(Code::kInvalidArgument,
                 "request target \"{}\" is empty or has spaces or line breaks", request.target);
  }
  std::string out = fmt::format("{} {} HTTP/1.1\r\n", request.method, request.target);
  for (const auto& [name, value] : request.headers) {
    if (!IsToken(name) || !IsFieldValue(value)) {
      return Error(Code::kInvalidArgument, "header field \"{}\" has an invalid name or value",
                   name);
    }
    AppendField(&out, name, value);
  }
  // Methods other than GET and HEAD send "Content-Length: 0" without a body (RFC 9110, 8.6).
  if (!request.body.empty() || !IsGetOrHead(request)) {
    AppendField(&out, "Content-Length", std::to_string(request.body.size()));
  }
  return out.append("\r\n").append(request.body);
}

std::string SerializeResponseHead(const Response& response, bool keep_alive, BodyFraming framing) {
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, ReasonPhrase(response.status));
  for (const auto& [name, value] : response.headers) {
    if (IsToken(name) && IsFieldValue(value)) AppendField(&out, name, value);
  }
  // A 204 must not have Content-Length. In a 304, Content-Length would be the length of the full
  // response (RFC 9110, 8.6).
  const bool has_body = response.status != 204 && response.status != 304;
  if (framing == BodyFraming::kChunked) {
    AppendField(&out, "Transfer-Encoding", "chunked");
  } else if (framing == BodyFraming::kLength && has_body) {
    AppendField(&out, "Content-Length", std::to_string(response.body.size()));
  }
  if (!keep_alive) AppendField(&out, "Connection", "close");
  return out.append("\r\n");
}

std::string_view ReasonPhrase(int status) {
  static constexpr std::array<std::pair<int, std::string_view>, 25> kPhrases{{
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {302, "Found"},
      {303, "See Other"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {406, "Not Acceptable"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {410, "Gone"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
  }};
  for (const auto& [code, phrase] : kPhrases) {
    if (code == status) return phrase;
  }
  return "Status";
}

std::string PercentEncode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (IsAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<std::string> PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const auto byte = HexDecode(text.substr(i + 1, 2));
    if (!byte.ok() || byte->size() != 1) {
      return Error(Code::kInvalidArgument, "\"{}\" has a % without two hexadecimal digits", text);
    }
    out += *byte;
    i += 2;
  }
  return out;
}

}  // namespace tessera::net
