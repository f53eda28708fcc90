// SPDX-License-Identifier: Apache-2.0
#include "src/net/http_server.h"

#include <unordered_map>
#include <utility>

#include "src/net/server_connection.h"
#include "src/net/stream_sink.h"

namespace tessera::net {

namespace {

// The state on the runner's thread. Tasks that wait in the runner own only this state, because
// sockets must not outlive the IoThread.
struct RunnerSide {
  HttpServer::Handler handler;
  bool server_destroyed = false;
};

}  // namespace

// The state on the IoThread.
struct HttpServer::Core : public std::enable_shared_from_this<HttpServer::Core> {
  Core(IoThread& io_thread, TaskRunner& task_runner, Options o, Handler h)
      : io(io_thread),
        runner(task_runner),
        options(std::move(o)),
        runner_side(std::make_shared<RunnerSide>(RunnerSide{std::move(h)})) {
    if (options.tls) {
      tls = std::make_unique<TlsContextSource>(TlsContextSource::Side::kServer, *options.tls);
    }
  }

  void AcceptNext() {
    listener->Accept([self = shared_from_this()](Result<TransportPtr> accepted) {
      if (self->closed || !accepted.ok()) return;
      self->Admit(*std::move(accepted));
      self->AcceptNext();
    });
  }

  void Admit(TransportPtr transport) {
    if (connections.size() >= options.limits.max_connections && !EvictSlowest())
      return transport->Close();
    std::shared_ptr<ssl_ctx_st> context;
    if (tls) {
      auto current = tls->Get();
      if (!current.ok()) return transport->Close();
      context = *std::move(current);
    }
    std::weak_ptr<Core> weak = weak_from_this();
    auto connection = std::make_shared<ServerConnection>(
        io, options.limits,
        [weak](Request request, std::shared_ptr<ServerConnection> from, uint64_t request_number) {
          if (const auto self = weak.lock())
            self->Dispatch(std::move(request), from, request_number);
        },
        [weak] {
          if (const auto self = weak.lock()) self->RejectExcessBody();
        },
        [weak](ServerConnection* closed) {
          if (const auto self = weak.lock()) self->connections.erase(closed);
        });
    connections.emplace(connection.get(), connection);
    connection->Start(std::move(transport), std::move(context));
  }

  // Makes room for a new connection, and returns whether there is room. Without it, idle or
  // malicious peers could block the kubelet's probes, and the kubelet would kill the pod.
  bool EvictSlowest() {
    ServerConnection* slowest = nullptr;
    for (const auto& [connection, unused] : connections) {
      if (!connection->evictable()) continue;
      if (!slowest || connection->waiting_since() < slowest->waiting_since()) slowest = connection;
    }
    if (slowest) slowest->Close();
    return slowest != nullptr;
  }

  // Rejects the largest body first, so that small requests are served regardless of large requests.
  void RejectExcessBody() {
    size_t total = 0;
    ServerConnection* largest = nullptr;
    for (const auto& [connection, unused] : connections) {
      const size_t bytes = connection->body_bytes();
      total += bytes;
      // A request that is being handled can no longer be rejected.
      if (!connection->evictable() || bytes == 0) continue;
      if (!largest || bytes > largest->body_bytes()) largest = connection;
    }
    const ServerLimits& limits = options.limits;
    const size_t max =
        limits.max_total_body_bytes > 0 ? limits.max_total_body_bytes : 4 * limits.max_body_bytes;
    if (total > max && largest) largest->RejectLargestRequest();
  }

  void Dispatch(Request request, const std::shared_ptr<ServerConnection>& from,
                uint64_t request_number) {
    std::weak_ptr<ServerConnection> weak = from;
    Reply reply = [&io = io, weak, request_number](Response response) {
      // Also posts for a connection that is gone if the response has a stream, which must be closed
      // on the IoThread.
      if (weak.expired() && !response.stream) return;
      io.Post([weak, request_number, response = std::move(response)]() mutable {
        const auto connection = weak.lock();
        if (connection) return connection->Answer(request_number, std::move(response));
        if (response.stream) response.stream->Close();
      });
    };
    request.presence = std::make_shared<ClientPresence>();
    from->WatchPeer(request_number, [&runner = runner, presence = request.presence] {
      runner.Post([presence] { presence->MarkGone(); });
    });
    runner.Post([runner_side = runner_side, request = std::move(request),
                 reply = std::move(reply)]() mutable {
      if (!runner_side->server_destroyed) runner_side->handler(request, std::move(reply));
    });
  }

  void Close() {
    closed = true;
    listener->Close();
    while (!connections.empty()) {
      const auto connection = connections.begin()->second;
      connection->Close();
    }
  }

  IoThread& io;
  TaskRunner& runner;
  const Options options;
  const std::shared_ptr<RunnerSide> runner_side;
  std::unique_ptr<TlsContextSource> tls;
  std::shared_ptr<Listener> listener;
  std::unordered_map<ServerConnection*, std::shared_ptr<ServerConnection>> connections;
  bool closed = false;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(IoThread& io, TaskRunner& runner,
                                                      Options options, Handler handler) {
  auto core = std::make_shared<Core>(io, runner, std::move(options), std::move(handler));
  if (core->tls) {
    const auto context = core->tls->Get();
    if (!context.ok()) return context.status();
  }
  ASSIGN_OR_RETURN(core->listener, Listener::Open(io, core->options.address));
  io.Post([core] { core->AcceptNext(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

HttpServer::~HttpServer() {
  core_->runner_side->server_destroyed = true;
  IoThread& io = core_->io;
  io.Post([core = std::move(core_)] { core->Close(); });
}

void HttpServer::SetTls(TlsOptions tls) {
  core_->io.Post([core = core_, tls = std::move(tls)] { core->tls->SetOptions(tls); });
}

const Address& HttpServer::address() const { return core_->listener->address(); }

}  // namespace tessera::net
