// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/log.h"

namespace tessera::agent {
namespace {

// An answer fits into the buffer of a fresh socket, so this does not block. If it does not fit, the
// peer does not read.
void Send(int fd, const Result<grant::Grant>& reply) {
  const std::string frame = grant::Frame(grant::EncodeReply(reply));
  (void)::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void LogAnswer(const grant::GrantRequest& request, const Result<grant::Grant>& reply) {
  const std::string pod = request.pod_namespace + "/" + request.pod_name;
  if (!reply.ok()) {
    return Log(Severity::kWarning, "rejected a grant",
               {{"pod", pod},
                {"uid", request.pod_uid},
                {"container", request.container},
                {"error", reply.status().ToString()}});
  }
  Log(Severity::kInfo, "granted GPUs to a container",
      {{"pod", pod},
       {"uid", request.pod_uid},
       {"container", request.container},
       {"gpus", grant::UuidsOf(*reply)}});
}

}  // namespace

GrantServer::GrantServer(TaskRunner* runner, GrantServerLimits limits, GrantMetrics* metrics,
                         Handler handler)
    : runner_(runner),
      limits_(limits),
      metrics_(metrics),
      handler_(std::move(handler)),
      accept_loop_(runner, [this](Fd fd) { OnConnection(std::move(fd)); }) {}

GrantServer::~GrantServer() {
  accept_loop_.Close();
  while (!connections_.empty()) Close(connections_.begin()->first);
}

Status GrantServer::Listen(const std::string& path) { return accept_loop_.Listen(path, 0600); }

void GrantServer::OnConnection(Fd fd) {
  // The kernel stores the client's user at connect(2) and maps it to the agent's user namespace; a
  // user without a mapping reads as 65534 (cred_to_ucred in net/core/sock.c). So root of a
  // container with user namespaces is not uid 0 here.
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != limits_.uid) {
    metrics_->grants.Add("PERMISSION_DENIED");
    return Send(fd.get(),
                Error(Code::kPermissionDenied, "uid {} may not request grants", peer.uid));
  }
  const uint64_t id = next_id_++;
  const int raw = fd.get();
  connections_[id].fd = std::move(fd);
  connections_[id].accepted_at = runner_->clock().Now();
  runner_->WatchReadable(raw, [this, id] { Read(id); });
  runner_->PostDelayed(limits_.request_timeout, [this, id, weak = weak_.Get()] {
    if (!weak) return;
    const auto found = connections_.find(id);
    if (found == connections_.end() || found->second.handling) return;
    ReplyAndClose(id, Status(Code::kDeadlineExceeded, "timed out before the request was complete"));
  });
  MakeRoom();
}

void GrantServer::MakeRoom() {
  if (connections_.size() < limits_.max_connections) return accept_loop_.Resume();
  accept_loop_.Pause();
  const auto oldest =
      std::ranges::find_if(connections_, [](const auto& each) { return !each.second.handling; });
  // An answer closes its connection, which makes room.
  if (oldest == connections_.end()) return;
  const Duration wait = oldest->second.accepted_at + limits_.stall_timeout - runner_->clock().Now();
  if (wait <= Duration::zero()) {
    return ReplyAndClose(oldest->first,
                         Status(Code::kResourceExhausted, "too many requests at once"));
  }
  runner_->PostDelayed(wait, [this, weak = weak_.Get()] {
    if (weak) MakeRoom();
  });
}

void GrantServer::Read(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  ClientConnection& connection = found->second;
  const Status status = ReceiveBytes(&connection);
  if (!status.ok()) return ReplyAndClose(id, status);
  if (connection.header_done && connection.received.size() == connection.expected_bytes) {
    Dispatch(id, &connection);
  }
}

Status GrantServer::ReceiveBytes(ClientConnection* connection) {
  char buffer[16 << 10];
  const size_t room =
      std::min(sizeof(buffer), connection->expected_bytes - connection->received.size());
  const ssize_t count = ::recv(connection->fd.get(), buffer, room, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Status::Ok();
  if (count <= 0) return Status(Code::kCancelled, "the client closed the connection");
  connection->received.append(buffer, static_cast<size_t>(count));
  if (connection->header_done || connection->received.size() < connection->expected_bytes) {
    return Status::Ok();
  }
  std::array<unsigned char, grant::kFrameHeaderSize> header;
  std::memcpy(header.data(), connection->received.data(), header.size());
  ASSIGN_OR_RETURN(connection->expected_bytes, grant::FrameLength(header));
  connection->header_done = true;
  connection->received.clear();
  return Status::Ok();
}

void GrantServer::Dispatch(uint64_t id, ClientConnection* connection) {
  connection->handling = true;
  connection->requested_at = runner_->clock().Now();
  runner_->Unwatch(connection->fd.get());
  const Result<grant::GrantRequest> request = grant::DecodeRequest(connection->received);
  if (!request.ok()) return ReplyAndClose(id, request.status());
  connection->received.clear();
  handler_(*request,
           [this, id, weak = weak_.Get(), request = *request](const Result<grant::Grant>& reply) {
             if (!weak) return;
             LogAnswer(request, reply);
             ReplyAndClose(id, reply);
           });
}

void GrantServer::ReplyAndClose(uint64_t id, const Result<grant::Grant>& reply) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  metrics_->grants.Add(InfoOf(reply.status().code()).name);
  if (found->second.handling) {
    metrics_->grant.Observe(runner_->clock().Now() - found->second.requested_at);
  }
  Send(found->second.fd.get(), reply);
  Close(id);
}

void GrantServer::Close(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  runner_->Unwatch(found->second.fd.get());
  connections_.erase(found);
  if (connections_.size() < limits_.max_connections) accept_loop_.Resume();
}

}  // namespace tessera::agent
