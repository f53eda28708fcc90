// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/plugin.h"

#include <sys/random.h>

#include <utility>

#include "src/agent/kubelet/kubelet_client.h"
#include "src/agent/kubelet/plugin_server.h"
#include "src/agent/kubelet/registrar.h"
#include "src/base/dir_watcher.h"
#include "src/base/strings.h"
#include "src/net/unix_listener.h"

namespace tessera::agent {
namespace {

constexpr std::string_view kSocketPrefix = "tessera-";

// Each process has its own name: kubelets up to 1.36 mix up plugins that share a name.
std::string NewEndpointName(std::string_view resource) {
  unsigned char random[4] = {};
  TESSERA_CHECK(::getrandom(random, sizeof(random), 0) == sizeof(random));
  const size_t slash = resource.find('/');
  return std::string(kSocketPrefix) + std::string(resource.substr(slash + 1)) + "-" +
         HexEncode({reinterpret_cast<const char*>(random), sizeof(random)}) + ".sock";
}

// A socket that still listens belongs to an agent that is stopping.
void RemoveStaleSockets(const std::string& dir) {
  const auto names = ListDir(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.substr(0, kSocketPrefix.size()) == kSocketPrefix) {
      net::RemoveSocketWithoutListener(JoinPath(dir, name));
    }
  }
}

class SocketEndpoint final : public PluginEndpoint {
 public:
  SocketEndpoint(PluginServer* server, std::string path)
      : server_(server), path_(std::move(path)) {}
  Status Listen() override { return server_->Listen(path_); }
  bool SocketPresent() const override { return server_->SocketPresent(); }
  void CloseStreams() override { server_->CloseStreams(); }
  int open_streams() const override { return server_->open_streams(); }

 private:
  PluginServer* const server_;
  const std::string path_;
};

}  // namespace

// Members are destroyed from the last to the first, so events stop before their targets are gone.
class Plugin::Impl {
 public:
  Impl(TaskRunner* runner, PluginOptions options, const PluginResponder* responder,
       const DeviceSetHolder* devices, KubeletMetrics* metrics)
      : dir_(DirName(options.kubelet_socket)),
        kubelet_socket_name_(BaseName(options.kubelet_socket)),
        plugin_socket_name_(NewEndpointName(options.resource)),
        server_(runner, responder, devices, metrics,
                {.stream_opened = [this] { registrar_.OnStreamOpened(); },
                 .stream_closed = [this] { registrar_.OnStreamClosed(); }}),
        endpoint_(&server_, JoinPath(dir_, plugin_socket_name_)),
        kubelet_(runner, options.kubelet_socket),
        registrar_(runner, &kubelet_, &endpoint_,
                   {plugin_socket_name_, options.resource, responder->requires_pre_start()},
                   metrics, options.on_registered_change),
        watcher_(runner, dir_,
                 {.on_appeared = [this](const std::string& name) { OnAppeared(name); },
                  .on_vanished = [this](const std::string& name) { OnVanished(name); },
                  .on_rescan = [this] { registrar_.OnRescan(); }}) {
    RemoveStaleSockets(dir_);
    watcher_.Start();
  }

  void Publish(const std::vector<DeviceSet::Offer>& offers) {
    server_.Publish(offers);
    if (!std::exchange(started_, true)) registrar_.Start();
  }
  bool registered() const { return registrar_.registered(); }

 private:
  void OnAppeared(const std::string& name) {
    if (name == kubelet_socket_name_) registrar_.OnKubeletSocketAppeared();
  }
  void OnVanished(const std::string& name) {
    if (name == plugin_socket_name_) registrar_.OnPluginSocketVanished();
  }

  const std::string dir_;
  const std::string kubelet_socket_name_;
  const std::string plugin_socket_name_;
  PluginServer server_;
  SocketEndpoint endpoint_;
  GrpcKubeletRegistry kubelet_;
  Registrar registrar_;
  DirWatcher watcher_;
  bool started_ = false;
};

Plugin::Plugin(TaskRunner* runner, PluginOptions options, const PluginResponder* responder,
               const DeviceSetHolder* devices, KubeletMetrics* metrics)
    : impl_(std::make_unique<Impl>(runner, std::move(options), responder, devices, metrics)) {}
Plugin::~Plugin() = default;

void Plugin::Publish(const std::vector<DeviceSet::Offer>& offers) { impl_->Publish(offers); }
bool Plugin::registered() const { return impl_->registered(); }

}  // namespace tessera::agent
