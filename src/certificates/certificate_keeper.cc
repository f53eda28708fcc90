// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/certificate_keeper.h"

#include <utility>

#include "src/certificates/shared_secret.h"
#include "src/certificates/webhook_config.h"
#include "src/kube/backoff.h"

namespace tessera::certificates {
namespace {

// Keys of the Secret: those of kubernetes.io/tls, and ours.
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
  auto Alive(F f) {
    return [weak = weak_from_this(), f = std::move(f)](auto&&... args) {
      if (const auto self = weak.lock()) f(*self, std::forward<decltype(args)>(args)...);
    };
  }

  void Sleep(Duration time) {
    runner.PostDelayed(time, Alive([](Core& self) { self.Begin(); }));
  }

  void Fail(const Status& status) {
    delegate.OnTrouble(status);
    Sleep(std::min<Duration>(backoff.Next(), options.period));
  }

  void Begin() {
    operation = secret.Read(Alive([](Core& self, const Result<SharedSecret::Found>& found) {
      found.ok() ? self.OnSecret(*found) : self.Fail(found.status());
    }));
  }

  void OnSecret(const SharedSecret::Found& found) {
    const CertificateSet set = SetOf(found);
    const bool out = set.bundle == bundle_out;
    const auto step = NextStep(set, runner.clock().WallNow(), out, options.certificate);
    if (!step.ok()) return Fail(step.status());
    if (!*step) return Adopt(set);
    operation = secret.Write(found, DataOf((*step)->set),
                             Alive([step = **step](Core& self, const Status& status) {
                               if (LostRace(status)) return self.Sleep(self.backoff.Next());
                               if (!status.ok()) return self.Fail(status);
                               self.delegate.OnProgress(step.what);
                               self.Adopt(step.set);
                             }));
  }

  void Adopt(const CertificateSet& set) {
    if (!(set.serving == shown)) {
      shown = set.serving;
      delegate.OnCertificate(shown);
    }
    bundle = set.bundle;
    trouble = false;
    CheckConfiguration(0);
  }

  void CheckConfiguration(size_t at) {
    if (at == options.configurations.size()) return End();
    operation =
        client.Get(options.configurations[at], Alive([at](Core& self, const Result<Json>& answer) {
                     if (answer.ok()) return self.Mend(at, *answer);
                     if (answer.status().code() != Code::kNotFound) {
                       self.Note(answer.status());
                     }
                     self.CheckConfiguration(at + 1);
                   }));
  }

  void Mend(size_t at, const Json& configuration) {
    const auto patch = BundlePatch(configuration, bundle);
    if (!patch) return CheckConfiguration(at + 1);
    const kube::ObjectRef& object = options.configurations[at];
    operation =
        client.Patch(object, kube::PatchKind::kJson, *patch, {},
                     Alive([at](Core& self, const Result<Json>& answer) {
                       if (answer.ok()) {
                         self.delegate.OnProgress("wrote the bundle into " +
                                                  kube::PathOf(self.options.configurations[at]));
                       } else {
                         self.Note(answer.status());
                       }
                       self.CheckConfiguration(at + 1);
                     }));
  }

  void Note(const Status& status) {
    trouble = true;
    delegate.OnTrouble(status);
  }

  void End() {
    if (trouble) return Sleep(std::min<Duration>(backoff.Next(), options.period));
    // Only what was seen in every configuration may a certificate rely on.
    bundle_out = bundle;
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
  net::CertificatePair shown;
  std::string bundle;      // to be in the configurations
  std::string bundle_out;  // was in all of them
  bool trouble = false;    // in this round's configurations
};

CertificateKeeper::CertificateKeeper(kube::Client& client, CertificateKeeperOptions options,
                                     Delegate& delegate)
    : core_(std::make_shared<Core>(client, std::move(options), delegate)) {
  core_->Sleep(Duration::zero());
}

CertificateKeeper::~CertificateKeeper() { core_->operation.Cancel(); }

}  // namespace tessera::certificates
