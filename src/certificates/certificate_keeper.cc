// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/certificate_keeper.h"

#include <utility>

#include "src/certificates/shared_secret.h"
#include "src/certificates/webhook_config.h"
#include "src/kube/backoff.h"

namespace tessera::certificates {
namespace {

// Keys of the Secret: ca.crt, tls.crt and tls.key are those of kubernetes.io/tls.
constexpr std::string_view kBundle = "ca.crt";
constexpr std::string_view kCertificate = "tls.crt";
constexpr std::string_view kKey = "tls.key";
constexpr std::string_view kNextCertificate = "next.crt";
constexpr std::string_view kNextKey = "next.key";

// A value that cannot be decoded counts as missing; NextStep replaces it.
CertificateSet SetOf(const SharedSecret::Found& found) {
  return {.bundle = found.Text(kBundle),
          .serving = {found.Text(kCertificate), found.Text(kKey)},
          .next = {found.Text(kNextCertificate), found.Text(kNextKey)}};
}

SharedSecret::Texts DataOf(const CertificateSet& set) {
  return {{std::string(kBundle), set.bundle},
          {std::string(kCertificate), set.serving.certificate},
          {std::string(kKey), set.serving.key},
          {std::string(kNextCertificate), set.next.certificate},
          {std::string(kNextKey), set.next.key}};
}

}  // namespace

// One round: read the Secret, take a step if one is due, check each configuration, sleep.
struct CertificateKeeper::Core : std::enable_shared_from_this<CertificateKeeper::Core> {
  Core(kube::Client& c, CertificateKeeperOptions o, Delegate& d)
      : client(c),
        runner(c.runner()),
        options(std::move(o)),
        delegate(d),
        secret(c, options.ns, options.secret) {}

  // A callback that does nothing once the keeper is gone.
  template <typename F>
  auto IfAlive(F f) {
    return [weak = weak_from_this(), f = std::move(f)](auto&&... args) {
      if (const auto self = weak.lock()) f(*self, std::forward<decltype(args)>(args)...);
    };
  }

  void Sleep(Duration time) {
    runner.PostDelayed(time, IfAlive([](Core& self) { self.ReadSecret(); }));
  }

  void Fail(const Status& status) {
    delegate.OnTrouble(status);
    Sleep(std::min<Duration>(backoff.Next(), options.period));
  }

  void ReadSecret() {
    operation = secret.Read(IfAlive([](Core& self, const Result<SharedSecret::Found>& found) {
      found.ok() ? self.OnSecret(*found) : self.Fail(found.status());
    }));
  }

  void OnSecret(const SharedSecret::Found& found) {
    const CertificateSet set = SetOf(found);
    const bool is_published = set.bundle == published_bundle;
    const auto step = NextStep(set, runner.clock().WallNow(), is_published, options.certificate);
    if (!step.ok()) return Fail(step.status());
    if (!*step) return Adopt(set);
    operation = secret.Write(found, DataOf((*step)->set),
                             IfAlive([step = **step](Core& self, const Status& status) {
                               if (IsWriteConflict(status)) return self.Sleep(self.backoff.Next());
                               if (!status.ok()) return self.Fail(status);
                               self.delegate.OnProgress(step.what);
                               self.Adopt(step.set);
                             }));
  }

  void Adopt(const CertificateSet& set) {
    if (!(set.serving == served)) {
      served = set.serving;
      delegate.OnCertificate(served);
    }
    bundle = set.bundle;
    had_error = false;
    CheckConfiguration(0);
  }

  void CheckConfiguration(size_t at) {
    if (at == options.configurations.size()) return FinishRound();
    operation = client.Get(options.configurations[at],
                           IfAlive([at](Core& self, const Result<Json>& answer) {
                             if (answer.ok()) return self.PatchBundle(at, *answer);
                             if (answer.status().code() != Code::kNotFound) {
                               self.ReportError(answer.status());
                             }
                             self.CheckConfiguration(at + 1);
                           }));
  }

  void PatchBundle(size_t at, const Json& configuration) {
    const auto patch = BundlePatch(configuration, bundle);
    if (!patch) return CheckConfiguration(at + 1);
    const kube::ObjectRef& object = options.configurations[at];
    operation =
        client.Patch(object, kube::PatchKind::kJson, *patch, {},
                     IfAlive([at](Core& self, const Result<Json>& answer) {
                       if (answer.ok()) {
                         self.delegate.OnProgress("wrote the bundle into " +
                                                  kube::PathOf(self.options.configurations[at]));
                       } else {
                         self.ReportError(answer.status());
                       }
                       self.CheckConfiguration(at + 1);
                     }));
  }

  void ReportError(const Status& status) {
    had_error = true;
    delegate.OnTrouble(status);
  }

  void FinishRound() {
    if (had_error) return Sleep(std::min<Duration>(backoff.Next(), options.period));
    // A certificate may be served only after every configuration was seen with its bundle.
    published_bundle = bundle;
    backoff.Reset();
    Sleep(options.period);
  }

  kube::Client& client;
  TaskRunner& runner;
  const CertificateKeeperOptions options;
  Delegate& delegate;
  const SharedSecret secret;
  kube::Backoff backoff;
  kube::Operation operation;
  net::CertificatePair served;
  std::string bundle;            // to publish in the configurations
  std::string published_bundle;  // seen in all of them
  bool had_error = false;        // in this round's configurations
};

CertificateKeeper::CertificateKeeper(kube::Client& client, CertificateKeeperOptions options,
                                     Delegate& delegate)
    : core_(std::make_shared<Core>(client, std::move(options), delegate)) {
  core_->Sleep(Duration::zero());
}

CertificateKeeper::~CertificateKeeper() { core_->operation.Cancel(); }

}  // namespace tessera::certificates
