// SPDX-License-Identifier: Apache-2.0
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "src/net/io_thread_impl.h"

namespace tessera::net {
namespace {

using boost::system::error_code;
using Endpoint = asio::generic::stream_protocol::endpoint;
using Acceptor =
    asio::basic_socket_acceptor<asio::generic::stream_protocol, asio::io_context::executor_type>;

// Without descriptors or memory an immediate retry would only spin.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

class SocketListener : public Listener, public std::enable_shared_from_this<SocketListener> {
 public:
  SocketListener(IoThread& io, Address address)
      : context_(io.impl().context),
        acceptor_(context_),
        pause_(io),
        address_(std::move(address)) {}
  ~SocketListener() override { RemoveFile(); }

  Status Bind(const Endpoint& endpoint) {
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (error) return FromErrorCode("socket", error);
    if (address_.unix_path.empty()) {
      acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    } else {
      RemoveStaleSocket();
    }
    // ":9400" also accepts IPv4, regardless of net.ipv6.bindv6only.
    if (address_.host.empty() && endpoint.protocol().family() == AF_INET6) {
      acceptor_.set_option(asio::ip::v6_only(false), error);
    }
    acceptor_.bind(endpoint, error);
    if (error) return FromErrorCode("bind", error);
    RememberFile();
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return FromErrorCode("listen", error);
    ReadPort();
    return Status::Ok();
  }

  void Reset() {
    error_code ignored;
    acceptor_.close(ignored);
  }

  void Accept(OnTransport on_accept) override {
    acceptor_.async_accept([self = shared_from_this(), on_accept = std::move(on_accept)](
                               const error_code& error, Socket socket) mutable {
      if (self->closed_ || error == asio::error::operation_aborted) return;
      if (error) return self->ScheduleAccept(std::move(on_accept));
      const int on = 1;
      // Fails on a unix socket, which delays nothing.
      ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      on_accept(MakePlainTransport(std::move(socket)));
    });
  }

  void Close() override {
    closed_ = true;
    pause_.Stop();
    RemoveFile();
    Reset();
  }

  const Address& address() const override { return address_; }

 private:
  void ScheduleAccept(OnTransport on_accept) {
    std::weak_ptr<SocketListener> weak = weak_from_this();
    pause_.Start(kAcceptPause, [weak, on_accept = std::move(on_accept)]() mutable {
      if (const auto self = weak.lock()) self->Accept(std::move(on_accept));
    });
  }

  void ReadPort() {
    error_code error;
    const Endpoint local = acceptor_.local_endpoint(error);
    if (error || !address_.unix_path.empty()) return;
    asio::ip::tcp::endpoint tcp;
    std::memcpy(tcp.data(), local.data(), std::min(local.size(), tcp.capacity()));
    address_.port = tcp.port();
  }

  // Removes a socket, such as that of a crashed process. Other files stay, and bind reports the
  // error.
  void RemoveStaleSocket() {
    struct stat file {};
    if (::lstat(address_.unix_path.c_str(), &file) == 0 && S_ISSOCK(file.st_mode)) {
      ::unlink(address_.unix_path.c_str());
    }
  }

  void RememberFile() {
    if (address_.unix_path.empty()) return;
    struct stat file {};
    if (::lstat(address_.unix_path.c_str(), &file) == 0) file_ = {file.st_dev, file.st_ino};
  }

  // Does not remove the file of another server that has bound the path since. REQUIRES: the socket
  // is open, so that its inode cannot be reused.
  void RemoveFile() {
    struct stat file {};
    if (file_ && ::lstat(address_.unix_path.c_str(), &file) == 0 &&
        *file_ == std::pair(file.st_dev, file.st_ino)) {
      ::unlink(address_.unix_path.c_str());
    }
    file_.reset();
  }

  asio::io_context& context_;
  Acceptor acceptor_;
  Timer pause_;
  Address address_;
  std::optional<std::pair<dev_t, ino_t>> file_;  // device and inode of the unix socket
  bool closed_ = false;
};

Result<Endpoint> EndpointOf(const Address& address, bool prefer_v6) {
  if (!address.unix_path.empty()) {
    return Endpoint(asio::local::stream_protocol::endpoint(address.unix_path));
  }
  if (address.host.empty()) {
    const auto any = prefer_v6 ? asio::ip::address(asio::ip::address_v6::any())
                               : asio::ip::address(asio::ip::address_v4::any());
    return Endpoint(asio::ip::tcp::endpoint(any, address.port));
  }
  error_code error;
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  const auto ip = asio::ip::make_address(host, error);
  if (error) {
    return Error(Code::kInvalidArgument, "\"{}\" is not an IP address to listen on", address.host);
  }
  return Endpoint(asio::ip::tcp::endpoint(ip, address.port));
}

}  // namespace

Result<std::shared_ptr<Listener>> Listener::Open(IoThread& io, const Address& address) {
  RETURN_IF_ERROR(CheckSocketPath(address).Annotate(address.ToString()));
  auto listener = std::make_shared<SocketListener>(io, address);
  ASSIGN_OR_RETURN(Endpoint endpoint, EndpointOf(address, /*prefer_v6=*/true));
  Status status = listener->Bind(endpoint);
  if (!status.ok() && address.unix_path.empty() && address.host.empty()) {
    // The kernel may have no IPv6.
    listener->Reset();
    ASSIGN_OR_RETURN(endpoint, EndpointOf(address, /*prefer_v6=*/false));
    status = listener->Bind(endpoint);
  }
  if (!status.ok()) return status.Annotate(address.ToString());
  return std::shared_ptr<Listener>(listener);
}

}  // namespace tessera::net
