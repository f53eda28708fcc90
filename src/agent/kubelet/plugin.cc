// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/plugin.h"

#include <sys/random.h>

#include <utility>

#include "src/base/file.h"
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

}  // namespace

Plugin::Plugin(TaskRunner* runner, PluginOptions options, const PluginResponder* responder,
               const DeviceSetHolder* devices, KubeletMetrics* metrics)
    : dir_(DirName(options.kubelet_socket)),
      kubelet_socket_name_(BaseName(options.kubelet_socket)),
      plugin_socket_name_(NewEndpointName(options.resource)),
      server_(MakePluginServer(runner, responder, devices, metrics,
                               JoinPath(dir_, plugin_socket_name_),
                               {.stream_opened = [this] { registrar_.OnStreamOpened(); },
                                .stream_closed = [this] { registrar_.OnStreamClosed(); }})),
      kubelet_(runner, options.kubelet_socket),
      registrar_(runner, &kubelet_, server_.get(),
                 {plugin_socket_name_, options.resource, responder->requires_pre_start()}, metrics,
                 options.on_registered_change),
      watcher_(runner, dir_,
               {.on_appeared = [this](const std::string& name) { OnAppeared(name); },
                .on_vanished = [this](const std::string& name) { OnVanished(name); },
                .on_rescan = [this] { registrar_.OnRescan(); }}) {
  RemoveStaleSockets(dir_);
  watcher_.Start();
}

void Plugin::Publish(const std::vector<DeviceSet::Offer>& offers) {
  server_->Publish(offers);
  if (!std::exchange(started_, true)) registrar_.Start();
}

void Plugin::OnAppeared(const std::string& name) {
  if (name == kubelet_socket_name_) registrar_.OnKubeletSocketAppeared();
}

void Plugin::OnVanished(const std::string& name) {
  if (name == plugin_socket_name_) registrar_.OnPluginSocketVanished();
}

}  // namespace tessera::agent
