// SPDX-License-Identifier: Apache-2.0
#include "src/grant/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/file.h"

namespace tessera::grant {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{5};
constexpr milliseconds kLongestPause{200};

MonotonicTime Now() { return std::chrono::steady_clock::now(); }

int MillisUntil(MonotonicTime end) {
  const auto remaining_ms = std::chrono::ceil<milliseconds>(end - Now()).count();
  return static_cast<int>(std::clamp<int64_t>(remaining_ms, 0, 3'600'000));
}

Status WaitFor(int fd, short events, MonotonicTime end) {
  while (true) {
    pollfd poll_fd{.fd = fd, .events = events, .revents = 0};
    const int count = ::poll(&poll_fd, 1, MillisUntil(end));
    if (count > 0) return Status::Ok();
    if (count == 0) {
      return Status(Code::kDeadlineExceeded,
                    "no answer in time: restart tessera-agent on this node");
    }
    if (errno != EINTR) return Status::FromErrno("poll", errno);
  }
}

Result<Fd> Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kInvalidArgument, "{}: too long for a socket path", path);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::FromErrno("socket", errno);
  // On a full backlog connect(2) of a non-blocking Unix socket fails with EAGAIN, instead of
  // waiting as on a TCP socket. RequestGrant retries after every error.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Status(Code::kUnavailable, std::strerror(errno));
  }
  return fd;
}

Status Send(int fd, std::string_view data, MonotonicTime end) {
  while (!data.empty()) {
    const ssize_t count = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      data.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(WaitFor(fd, POLLOUT, end));
    } else if (errno != EINTR) {
      return Status(Code::kUnavailable, std::strerror(errno));
    }
  }
  return Status::Ok();
}

Status Receive(int fd, char* data, size_t size, MonotonicTime end) {
  while (size > 0) {
    const ssize_t count = ::recv(fd, data, size, 0);
    if (count > 0) {
      data += count;
      size -= static_cast<size_t>(count);
    } else if (count == 0) {
      return Status(Code::kUnavailable, "the connection was closed without an answer");
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(WaitFor(fd, POLLIN, end));
    } else if (errno != EINTR) {
      return Status(Code::kUnavailable, std::strerror(errno));
    }
  }
  return Status::Ok();
}

Result<std::string> Exchange(const std::string& path, std::string_view frame, MonotonicTime end) {
  ASSIGN_OR_RETURN(const Fd fd, Connect(path));
  // An agent that rejects a connection early (too many clients, client not root) answers without
  // reading the request. Its error says more than the EPIPE of Send.
  const Status sent = Send(fd.get(), frame, end);
  std::array<unsigned char, kFrameHeaderSize> header;
  const Status received =
      Receive(fd.get(), reinterpret_cast<char*>(header.data()), header.size(), end);
  if (!received.ok()) return sent.ok() ? received : sent;
  ASSIGN_OR_RETURN(const size_t length, FrameLength(header));
  std::string reply(length, '\0');
  RETURN_IF_ERROR(Receive(fd.get(), reply.data(), reply.size(), end));
  return reply;
}

}  // namespace

Result<Grant> RequestGrant(const std::string& socket_path, const GrantRequest& request,
                           Duration timeout) {
  const MonotonicTime end = Now() + timeout;
  const std::string frame = Frame(EncodeRequest(request));
  milliseconds pause = kFirstPause;
  while (true) {
    Result<std::string> reply = Exchange(socket_path, frame, end);
    if (reply.ok()) return DecodeReply(*reply);
    const Status& status = reply.status();
    const bool is_unreachable = status.code() == Code::kUnavailable;
    if (!is_unreachable || Now() + pause >= end) {
      return Error(status.code(), "tessera-agent at {}: {}{}", socket_path, status.message(),
                   is_unreachable ? ": check that tessera-agent runs on this node" : "");
    }
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace tessera::grant
