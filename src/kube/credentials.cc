// SPDX-License-Identifier: Apache-2.0
#include "src/kube/credentials.h"

#include <mutex>
#include <utility>
#include <vector>

namespace tessera::kube {
namespace {

constexpr Duration kPluginTimeout = std::chrono::seconds(30);

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
    if (has_current && (!expires || runner.clock().WallNow() < *expires)) return on_ready(current);
    waiting.push_back(std::move(on_ready));
    if (waiting.size() == 1) RunPlugin();
  }

  Result<Credential> FromConfig() {
    ASSIGN_OR_RETURN(std::string token, tokens.Get());
    if (token != current.token) current = {std::move(token), current.generation + 1};
    return current;
  }

  bool RejectAndCheckRetry(const Credential& credential) {
    if (!plugin) return FromConfig().ok() && current.generation != credential.generation;
    if (credential.generation == current.generation) has_current = false;
    return true;
  }

  // A plugin that hangs keeps the worker thread alive after this Core is destroyed. The thread
  // therefore uses a CoreRef, whose `core` is null from then on.
  struct CoreRef {
    std::mutex mutex;  // orders the worker's Post and the runner's Close
    Core* core = nullptr;
  };

  void RunPlugin() {
    if (!worker) worker = std::make_unique<Worker>("kube-exec");
    if (!core_ref) core_ref = std::make_shared<CoreRef>();
    core_ref->core = this;
    worker->Post([core_ref = core_ref, plugin = *plugin, server = server, tls = tls] {
      auto answer = RunExecPlugin(plugin, server, tls, kPluginTimeout);
      const std::lock_guard lock(core_ref->mutex);
      if (core_ref->core == nullptr) return;
      core_ref->core->runner.Post([core_ref, answer = std::move(answer)]() mutable {
        // Close runs on this thread too, so reading `core` needs no lock.
        if (core_ref->core != nullptr) core_ref->core->OnAnswer(std::move(answer));
      });
    });
  }

  void OnAnswer(Result<ExecCredential> answer) {
    has_current = answer.ok();
    if (has_current) {
      current = {answer->token, current.generation + 1};
      expires = answer->expires;
      if (!answer->key.empty()) on_certificate(answer->certificate, answer->key);
    }
    const Result<Credential> result = has_current ? Result<Credential>(current) : answer.status();
    const auto ready = std::exchange(waiting, {});
    const auto keep_alive = core_ref;
    for (const OnReady& on_ready : ready) {
      on_ready(result);
      if (keep_alive->core == nullptr) return;  // The callback has destroyed this object.
    }
  }

  void Close() {
    if (!core_ref) return;
    const std::lock_guard lock(core_ref->mutex);
    core_ref->core = nullptr;
    worker->Abandon();
  }

  TaskRunner& runner;
  const std::optional<ExecPlugin> plugin;
  const net::Url server;
  const net::TlsOptions tls;
  TokenSource tokens;
  OnCertificate on_certificate;
  Credential current;
  bool has_current = false;  // plugins only: `current` is valid until `expires`
  std::optional<WallTime> expires;
  std::vector<OnReady> waiting;  // callers that wait for the running plugin
  std::shared_ptr<CoreRef> core_ref;
  std::unique_ptr<Worker> worker;
};

CredentialSource::CredentialSource(TaskRunner& runner, const Config& config,
                                   OnCertificate on_certificate)
    : core_(std::make_shared<Core>(runner, config, std::move(on_certificate))) {}

CredentialSource::~CredentialSource() { core_->Close(); }

void CredentialSource::Get(OnReady on_ready) {
  const auto keep_alive = core_;
  keep_alive->Get(std::move(on_ready));
}

void CredentialSource::SetToken(std::string token) { core_->tokens.Set(std::move(token)); }

bool CredentialSource::RejectAndCheckRetry(const Credential& credential) {
  return core_->RejectAndCheckRetry(credential);
}

}  // namespace tessera::kube
