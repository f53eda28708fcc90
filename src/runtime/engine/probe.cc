// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "src/base/file.h"
#include "src/formats/json.h"
#include "src/formats/wire_reader.h"

namespace tessera::engine {
namespace {

constexpr size_t kMaxAnswerBytes = 4u << 20;

// A stream socket whose answers carry the credentials of the process that wrote them.
class PeerSocket {
 public:
  static Result<PeerSocket> Open(const std::string& path, Duration deadline) {
    PeerSocket connection;
    connection.deadline_ = SystemClock().Now() + deadline;
    connection.fd_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Connects through a descriptor, because a path below a mounted root may be longer than
    // sun_path.
    const Fd file(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!file.valid()) return Error(Code::kUnavailable, "{}: {}", path, std::strerror(errno));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    fmt::format_to_n(address.sun_path, sizeof address.sun_path - 1, "/proc/self/fd/{}", file.get());
    // SO_PEERCRED would name the process that called listen(2), which may be systemd.
    const int on = 1;
    ::setsockopt(connection.fd_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    // connect blocks while the backlog of a hung server is full.
    const timeval limit{std::chrono::ceil<std::chrono::seconds>(deadline).count(), 0};
    ::setsockopt(connection.fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(connection.fd_.get(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) != 0) {
      return Error(Code::kUnavailable, "{}: {}", path, std::strerror(errno));
    }
    return connection;
  }

  pid_t peer() const { return peer_; }

  Status Send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return Error(Code::kUnavailable, "send: {}", std::strerror(errno));
      data.remove_prefix(static_cast<size_t>(sent));
    }
    return Status::Ok();
  }

  // Returns the bytes that are available; empty at the end of the stream.
  Result<std::string> Receive() {
    RETURN_IF_ERROR(WaitReadable());
    std::string buffer(16384, '\0');
    alignas(cmsghdr) std::array<char, 256> control;
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
    if (size < 0) return Error(Code::kUnavailable, "receive: {}", std::strerror(errno));
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_CREDENTIALS || size == 0)
        continue;
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(head), sizeof credentials);
      peer_ = credentials.pid;
    }
    buffer.resize(static_cast<size_t>(size));
    return buffer;
  }

 private:
  Status WaitReadable() const {
    for (;;) {
      const auto remaining_ms =
          std::chrono::ceil<std::chrono::milliseconds>(deadline_ - SystemClock().Now()).count();
      if (remaining_ms <= 0) return Error(Code::kDeadlineExceeded, "no answer in time");
      pollfd wait{fd_.get(), POLLIN, 0};
      const int ready = ::poll(&wait, 1, static_cast<int>(remaining_ms));
      if (ready > 0) return Status::Ok();
      if (ready < 0 && errno != EINTR) return Status::FromErrno("poll", errno);
    }
  }

  Fd fd_;
  MonotonicTime deadline_;
  pid_t peer_ = 0;
};

// HTTP/2 (RFC 9113) for one unary call.

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7
};
constexpr uint8_t kEndStream = 1;  // the same bit is ACK of SETTINGS and PING
constexpr uint8_t kEndHeaders = 4;
constexpr uint8_t kPadded = 8;
constexpr size_t kFrameHeader = 9;

std::string Frame(FrameType type, uint8_t flags, uint8_t stream, std::string_view payload) {
  std::string frame;
  frame += static_cast<char>(payload.size() >> 16);
  frame += static_cast<char>(payload.size() >> 8);
  frame += static_cast<char>(payload.size());
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame.append(3, '\0');
  frame += static_cast<char>(stream);
  frame += payload;
  return frame;
}

// HPACK without a dynamic table: literals, with names from the static table (RFC 7541, appendix A)
// if it has them. All lengths here are below 127, so each takes one byte.
std::string RequestHeaders(std::string_view path) {
  std::string block = "\x83\x86";  // :method POST, :scheme http
  const auto add = [&block](std::string_view name, std::string_view value) {
    block.append(name).append(1, static_cast<char>(value.size())).append(value);
  };
  add("\x04", path);
  add("\x01", "localhost");             // :authority
  add("\x0f\x10", "application/grpc");  // content-type
  add(std::string_view("\0\2te", 4), "trailers");
  return block;
}

class UnaryCall {
 public:
  explicit UnaryCall(PeerSocket* connection) : connection_(*connection) {}

  // Sends an empty message and returns the answer's message. UNIMPLEMENTED: the server rejected the
  // call; its reason is HPACK-compressed and not decoded.
  Result<std::string> Run(std::string_view path) {
    const std::string message(5, '\0');  // not compressed, of length 0
    RETURN_IF_ERROR(connection_.Send(
        fmt::format("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{}{}{}", Frame(kSettings, 0, 0, ""),
                    Frame(kHeaders, kEndHeaders, 1, RequestHeaders(path)),
                    Frame(kData, kEndStream, 1, message))));
    while (!done_) {
      ASSIGN_OR_RETURN(const std::string bytes, connection_.Receive());
      if (bytes.empty()) return Error(Code::kDataLoss, "the connection ended before the answer");
      buffer_ += bytes;
      RETURN_IF_ERROR(HandleFrames());
    }
    if (body_.size() < 5) return Error(Code::kUnimplemented, "{} is not served", path);
    return body_.substr(5);
  }

 private:
  Status HandleFrames() {
    while (buffer_.size() >= kFrameHeader && !done_) {
      const auto byte = [&](size_t i) { return static_cast<uint8_t>(buffer_[i]); };
      const size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
      if (size > kMaxAnswerBytes) return Error(Code::kDataLoss, "the answer is not HTTP/2");
      if (buffer_.size() < kFrameHeader + size) return Status::Ok();
      const std::string payload = buffer_.substr(kFrameHeader, size);
      RETURN_IF_ERROR(HandleFrame(byte(3), byte(4), payload));
      buffer_.erase(0, kFrameHeader + size);
    }
    return Status::Ok();
  }

  Status HandleFrame(uint8_t type, uint8_t flags, std::string_view payload) {
    switch (type) {
      case kData:
        if ((flags & kPadded) != 0) return Error(Code::kDataLoss, "the answer is padded");
        body_ += payload;
        done_ = (flags & kEndStream) != 0;
        break;
      case kHeaders:
        done_ = (flags & kEndStream) != 0;
        break;
      case kSettings:
        if ((flags & kEndStream) == 0) return connection_.Send(Frame(kSettings, kEndStream, 0, ""));
        break;
      case kPing:
        if ((flags & kEndStream) == 0) {
          return connection_.Send(Frame(kPing, kEndStream, 0, payload));
        }
        break;
      case kReset:
      case kGoAway:
        return Error(Code::kDataLoss, "the server aborted the call");
      default:
        break;
    }
    return Status::Ok();
  }

  PeerSocket& connection_;
  std::string buffer_;
  std::string body_;
  bool done_ = false;
};

// The fields with `field_number`, up to the first byte that is not protobuf.
std::vector<std::string> Fields(std::string_view message, uint32_t field_number) {
  std::vector<std::string> found;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() != field_number) continue;
    const std::string_view bytes = reader.Bytes();
    if (reader.status().ok()) found.emplace_back(bytes);
  }
  return found;
}

struct EngineReply {
  pid_t pid = 0;
  std::string message;
};

Result<EngineReply> CallGrpc(const std::string& socket, std::string_view path, Duration deadline) {
  ASSIGN_OR_RETURN(PeerSocket connection, PeerSocket::Open(socket, deadline));
  ASSIGN_OR_RETURN(std::string message, UnaryCall(&connection).Run(path));
  return EngineReply{connection.peer(), std::move(message)};
}

// Queries the version, in field `version_field` of the answer to `version_path`, and the kubelet's
// interface (CRI), which containerd and CRI-O have in common.
Result<EngineInfo> QueryGrpc(const std::string& socket, std::string_view version_path,
                             uint32_t version_field, Duration deadline) {
  EngineInfo answer;
  ASSIGN_OR_RETURN(const EngineReply version, CallGrpc(socket, version_path, deadline));
  answer.pid = version.pid;
  for (const std::string& text : Fields(version.message, version_field)) {
    answer.version = ParseVersion(text);
  }
  const auto status = CallGrpc(socket, "/runtime.v1.RuntimeService/Status", deadline);
  if (!status.ok()) return answer;
  answer.serves_cri = true;
  answer.pid = status->pid;
  for (const std::string& handler : Fields(status->message, 3)) {
    for (std::string& name : Fields(handler, 1)) answer.runtimes.push_back(std::move(name));
  }
  return answer;
}

// Uses HTTP/1.0, so that the answer ends with the connection and is never chunked.
Result<EngineReply> GetHttp(const std::string& socket, std::string_view path, Duration deadline) {
  ASSIGN_OR_RETURN(PeerSocket connection, PeerSocket::Open(socket, deadline));
  RETURN_IF_ERROR(connection.Send(fmt::format("GET {} HTTP/1.0\r\nHost: docker\r\n\r\n", path)));
  std::string text;
  for (;;) {
    ASSIGN_OR_RETURN(const std::string bytes, connection.Receive());
    if (bytes.empty()) break;
    text += bytes;
    if (text.size() > kMaxAnswerBytes)
      return Error(Code::kDataLoss, "GET {}: the answer is too long", path);
  }
  const size_t body = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.") || body == std::string::npos ||
      text.substr(8, 5).find(" 200") != 0) {
    return Error(Code::kDataLoss, "GET {}: {}", path, text.substr(0, text.find('\r')));
  }
  return EngineReply{connection.peer(), text.substr(body + 4)};
}

Result<EngineInfo> QueryDocker(const std::string& socket, Duration deadline) {
  EngineInfo answer;
  ASSIGN_OR_RETURN(const EngineReply ping, GetHttp(socket, "/_ping", deadline));
  answer.pid = ping.pid;
  const auto info = GetHttp(socket, "/info", deadline);
  if (!info.ok()) return answer;
  const auto json = ParseJson(info->message);
  if (!json.ok()) return answer;
  const auto version = json->StringAt("ServerVersion");
  if (version.ok()) answer.version = ParseVersion(*version);
  answer.default_runtime = json->StringAt("DefaultRuntime").value_or("");
  const Json* runtimes = json->Find("Runtimes");
  if (runtimes == nullptr || !runtimes->is_object()) return answer;
  for (const auto& [name, value] : runtimes->members()) answer.runtimes.push_back(name);
  return answer;
}

}  // namespace

Result<EngineInfo> QueryEngine(EngineKind engine, const std::string& socket_path,
                               Duration deadline) {
  switch (engine) {
    case EngineKind::kContainerd:
      return QueryGrpc(socket_path, "/containerd.services.version.v1.Version/Version", 1, deadline);
    case EngineKind::kDocker:
      return QueryDocker(socket_path, deadline);
    case EngineKind::kCrio:
      return QueryGrpc(socket_path, "/runtime.v1.RuntimeService/Version", 3, deadline);
  }
  return Error(Code::kInternal, "no such engine");
}

}  // namespace tessera::engine
