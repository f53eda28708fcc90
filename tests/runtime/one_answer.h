// SPDX-License-Identifier: Apache-2.0
// A fake of tessera-agent, because the tests need only its answer, and not an agent with a kubelet.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "src/base/file.h"
#include "src/grant/message.h"

namespace tessera {

// Gives the same answer to each request at a unix socket, as the agent would.
class OneAnswer {
 public:
  OneAnswer(const std::string& path, Result<grant::Grant> answer) : path_(path) {
    listener_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    TESSERA_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
                  0);
    TESSERA_CHECK(::listen(listener_.get(), 4) == 0);
    thread_ = std::thread([this, reply = grant::EncodeReply(answer)] { Serve(reply); });
  }
  ~OneAnswer() { Finish(); }
  // Returns the last request that arrived, or nothing if no request arrived.
  std::optional<grant::GrantRequest> Finish() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::unlink(path_.c_str());
    return request_;
  }

 private:
  void Serve(const std::string& reply) {
    while (true) {
      const Fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.valid()) return;
      Answer(peer, reply);
    }
  }
  void Answer(const Fd& peer, const std::string& reply) {
    std::array<unsigned char, grant::kFrameHeaderSize> header;
    if (::recv(peer.get(), header.data(), header.size(), MSG_WAITALL) != 4) return;
    std::string body(grant::FrameLength(header).value(), '\0');
    ::recv(peer.get(), body.data(), body.size(), MSG_WAITALL);
    request_ = grant::DecodeRequest(body).value();
    (void)WriteFd(peer.get(), grant::Frame(reply)).ok();
  }

  std::string path_;
  Fd listener_;
  std::thread thread_;
  std::optional<grant::GrantRequest> request_;
};

// The GPU with minor 0 is the second GPU by bus address.
inline grant::Grant GrantOfSecondGpu(const std::string& driver_root) {
  grant::Grant grant;
  grant.driver_root = driver_root;
  grant.dev_root = driver_root;
  grant.devices = {{.uuid = "GPU-22222222-2222-2222-2222-222222222222",
                    .minor = 0,
                    .path = "/dev/nvidia0",
                    .host_path = driver_root + "/dev/nvidia0",
                    .major_number = 195,
                    .minor_number = 0}};
  return grant;
}

}  // namespace tessera
