// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/extender_caller.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "src/scheduler/verbs.h"

namespace tessera::bench {
namespace {

[[noreturn]] void Fail(std::string_view what, std::string_view text) {
  std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(std::min<size_t>(text.size(), 300)), text.data());
  std::exit(1);
}

}  // namespace

ExtenderCaller::ExtenderCaller(const net::Address& to)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(to.port);
  ::inet_pton(AF_INET, to.host.c_str(), &address.sin_addr);
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    Fail("connect", to.ToString());
  }
}

std::string_view ExtenderCaller::Filter(std::string_view pod, std::string_view names) {
  return Post("filter", std::array<std::string_view, 5>{
                            "{\"Pod\":", pod, ",\"Nodes\":null,\"NodeNames\":", names, "}"});
}

std::string_view ExtenderCaller::Prioritize(std::string_view pod, std::string_view names) {
  return Post("prioritize", std::array<std::string_view, 5>{
                                "{\"Pod\":", pod, ",\"Nodes\":null,\"NodeNames\":", names, "}"});
}

std::string_view ExtenderCaller::Bind(std::string_view ns, std::string_view name, const Uid& uid,
                                      std::string_view node) {
  const std::string body = fmt::format(
      R"({{"PodName":"{}","PodNamespace":"{}","PodUID":"{}","Node":"{}"}})", name, ns, uid, node);
  return Post("bind", std::array<std::string_view, 1>{body});
}

std::string_view ExtenderCaller::Post(std::string_view verb,
                                      std::span<const std::string_view> body) {
  size_t size = 0;
  for (const std::string_view piece : body) size += piece.size();
  header_ = fmt::format(
      "POST {}/{} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n",
      scheduler::kExtenderPrefix, verb, size);
  std::vector<std::string_view> pieces = {header_};
  pieces.insert(pieces.end(), body.begin(), body.end());
  return Exchange(pieces);
}

std::string_view ExtenderCaller::Get(std::string_view path) {
  header_ = fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", path);
  return Exchange(std::array<std::string_view, 1>{header_});
}

std::string_view ExtenderCaller::Exchange(std::span<const std::string_view> pieces) {
  std::vector<iovec> rest;
  for (const std::string_view piece : pieces) {
    rest.push_back({const_cast<char*>(piece.data()), piece.size()});
  }
  for (size_t at = 0; at < rest.size();) {
    const ssize_t sent = ::writev(socket_.get(), &rest[at], static_cast<int>(rest.size() - at));
    if (sent < 0) Fail("send", "the extender hung up");
    for (size_t left = static_cast<size_t>(sent); at < rest.size(); ++at) {
      if (left < rest[at].iov_len) {
        rest[at].iov_base = static_cast<char*>(rest[at].iov_base) + left;
        rest[at].iov_len -= left;
        break;
      }
      left -= rest[at].iov_len;
    }
  }
  return Receive();
}

std::string_view ExtenderCaller::Receive() {
  size_t have = 0, wanted = std::string::npos, body = 0;
  while (have < wanted) {
    if (have == buffer_.size()) Fail("receive", "an answer above 4 MiB");
    const ssize_t got = ::recv(socket_.get(), buffer_.data() + have, buffer_.size() - have, 0);
    if (got <= 0) Fail("receive", "the extender hung up");
    have += static_cast<size_t>(got);
    if (body != 0) continue;
    const std::string_view text(buffer_.data(), have);
    const size_t end = text.find("\r\n\r\n");
    if (end == std::string_view::npos) continue;
    if (!text.starts_with("HTTP/1.1 200")) Fail("answer", text);
    body = end + 4;
    wanted = body + std::strtoul(text.data() + text.find("Content-Length: ") + 16, nullptr, 10);
  }
  return {buffer_.data() + body, wanted - body};
}

std::string_view NamesIn(std::string_view answer) {
  constexpr std::string_view kKey = "\"NodeNames\":", kNext = ",\"FailedNodes\"";
  const size_t begin = answer.find(kKey), end = answer.find(kNext);
  if (begin == std::string_view::npos || end == std::string_view::npos) Fail("filter", answer);
  return answer.substr(begin + kKey.size(), end - begin - kKey.size());
}

std::string_view BestIn(std::string_view answer) {
  const size_t end = answer.find("\",\"Score\":10}");
  if (end == std::string_view::npos) return "";
  const size_t begin = answer.rfind('"', end - 1) + 1;
  return answer.substr(begin, end - begin);
}

}  // namespace tessera::bench
