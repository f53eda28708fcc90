// SPDX-License-Identifier: Apache-2.0
#include "src/kube/credentials.h"

#include <mutex>
#include <utility>
#include <vector>

namespace tessera::kube {
namespace {

constexpr Duration kPluginDeadline = std::chrono::seconds(30);

}  // namespace

struct CredentialSource::Core {
  Core(TaskRunner& r, const Config& config, OnCertificate f)
      : runner(r),
        plugin(config.exec),
        server(config.server),
        tls(config.tls),
        tokens(config),
        on_certificate(std::move(f)) {}

  void Get(OnReady on_ready) {
    if (!plugin) return on_ready(FromConfig());
    if (have && (!expires || runner.clock().WallNow() < *expires)) return on_ready(current);
    waiting.push_back(std::move(on_ready));
    if (waiting.size() == 1) RunPlugin();
  }

  Result<Credential> FromConfig() {
    ASSIGN_OR_RETURN(std::string token, tokens.Get());
    if (token != current.token) current = {std::move(token), current.generation + 1};
    return current;
  }

  bool Reject(const Credential& credential) {
    if (!plugin) return FromConfig().ok() && current.generation != credential.generation;
    if (credential.generation == current.generation) have = false;
    return true;
  }

  // The worker thread outlives this object if the plugin hangs, so it refers to it only through
  // `door`.
  struct Door {
    std::mutex mutex;  // The worker's thread posts while the runner's thread may close the door.
    Core* core = nullptr;
  };

  void RunPlugin() {
    if (!worker) worker = std::make_unique<Worker>("kube-exec");
    if (!door) door = std::make_shared<Door>();
    door->core = this;
    worker->Post([door = door, plugin = *plugin, server = server, tls = tls] {
      auto answer = RunExecPlugin(plugin, server, tls, kPluginDeadline);
      const std::lock_guard lock(door->mutex);
      if (door->core == nullptr) return;
      door->core->runner.Post([door, answer = std::move(answer)]() mutable {
        // Closing happens on this thread, so no lock is needed.
        if (door->core != nullptr) door->core->OnAnswer(std::move(answer));
      });
    });
  }

  void OnAnswer(Result<ExecCredential> answer) {
    have = answer.ok();
    if (have) {
      current = {answer->token, current.generation + 1};
      expires = answer->expires;
      if (!answer->key.empty()) on_certificate(answer->certificate, answer->key);
    }
    const Result<Credential> result = have ? Result<Credential>(current) : answer.status();
    const auto ready = std::exchange(waiting, {});
    const auto held = door;
    for (const OnReady& on_ready : ready) {
      on_ready(result);
      if (held->core == nullptr) return;  // The callback has destroyed this object.
    }
  }

  void Close() {
    if (!door) return;
    const std::lock_guard lock(door->mutex);
    door->core = nullptr;
    worker->GiveUp();
  }

  TaskRunner& runner;
  const std::optional<ExecPlugin> plugin;
  const net::Url server;
  const net::TlsOptions tls;
  TokenSource tokens;
  OnCertificate on_certificate;
  Credential current;
  bool have = false;  // plugins only: `current` is valid until `expires`
  std::optional<WallTime> expires;
  std::vector<OnReady> waiting;  // callers that wait for the running plugin
  std::shared_ptr<Door> door;
  std::unique_ptr<Worker> worker;
};

CredentialSource::CredentialSource(TaskRunner& runner, const Config& config, OnCertificate f)
    : core_(std::make_shared<Core>(runner, config, std::move(f))) {}

CredentialSource::~CredentialSource() { core_->Close(); }

void CredentialSource::Get(OnReady on_ready) {
  const auto held = core_;
  held->Get(std::move(on_ready));
}

bool CredentialSource::Reject(const Credential& credential) { return core_->Reject(credential); }

}  // namespace tessera::kube
