// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/certificate_keeper.h"

#include <optional>
#include <utility>

#include "src/formats/base64.h"
#include "src/kube/backoff.h"
#include "src/scheduler/webhook_config.h"

namespace tessera::scheduler {
namespace {

// Keys of the Secret: those of kubernetes.io/tls, and ours.
constexpr std::string_view kBundle = "ca.crt";
constexpr std::string_view kCertificate = "tls.crt";
constexpr std::string_view kKey = "tls.key";
constexpr std::string_view kNextCertificate = "next.crt";
constexpr std::string_view kNextKey = "next.key";

// What cannot be read is as good as not there: a new one is made in its place.
std::string TextAt(const Json& secret, std::string_view key) {
  const Json* data = secret.Find("data");
  if (data == nullptr || !data->is_object()) return "";
  return Base64Decode(data->StringAt(key).value_or("")).value_or("");
}

CertificateSet SetOf(const Json& secret) {
  return {.bundle = TextAt(secret, kBundle),
          .serving = {TextAt(secret, kCertificate), TextAt(secret, kKey)},
          .next = {TextAt(secret, kNextCertificate), TextAt(secret, kNextKey)}};
}

Json DataOf(const CertificateSet& set) {
  Json data = Json::MakeObject();
  const auto put = [&](std::string_view key, const std::string& text) {
    // In a merge patch null takes away.
    data.Set(key, text.empty() ? Json() : Json::String(Base64Encode(text)));
  };
  put(kBundle, set.bundle);
  put(kCertificate, set.serving.certificate);
  put(kKey, set.serving.key);
  put(kNextCertificate, set.next.certificate);
  put(kNextKey, set.next.key);
  return data;
}

}  // namespace

// One round: read the Secret, take a step where one is due, look at each configuration, sleep.
struct CertificateKeeper::Core : std::enable_shared_from_this<CertificateKeeper::Core> {
  Core(kube::Client& c, CertificateKeeperOptions o, Delegate& d)
      : client(c),
        runner(c.runner()),
        options(std::move(o)),
        delegate(d),
        secret{kube::kSecrets, options.secret, options.ns, ""} {}

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
    operation = client.Get(secret, Alive([](Core& self, const Result<Json>& answer) {
                             if (answer.ok()) return self.OnSecret(*answer);
                             if (answer.status().code() != Code::kNotFound) {
                               return self.Fail(answer.status());
                             }
                             self.OnSecret(Json::MakeObject());
                           }));
  }

  void OnSecret(const Json& found) {
    const CertificateSet set = SetOf(found);
    const bool out = set.bundle == bundle_out;
    const auto step = NextStep(set, runner.clock().WallNow(), out, options.certificate);
    if (!step.ok()) return Fail(step.status());
    if (*step) return Write(found, **step);
    Adopt(set);
  }

  void Write(const Json& found, const CertificateStep& step) {
    auto on_done = Alive([step](Core& self, const Result<Json>& answer) {
      const Code code = answer.status().code();
      // Another replica was faster, and what it wrote counts. After its Create we may only patch.
      if (code == Code::kAborted || code == Code::kAlreadyExists) {
        return self.Sleep(self.backoff.Next());
      }
      if (!answer.ok()) return self.Fail(answer.status());
      self.delegate.OnProgress(step.what);
      self.Adopt(step.set);
    });
    const Json* metadata = found.Find("metadata");
    if (metadata == nullptr) {
      operation = client.Create(secret, NewSecret(step.set), std::move(on_done));
      return;
    }
    // With the version in it a merge patch conflicts as a replacement does.
    const Json patch = Json::MakeObject(
        {{"metadata",
          Json::MakeObject({{"resourceVersion",
                             Json::String(metadata->StringAt("resourceVersion").value_or(""))}})},
         {"data", DataOf(step.set)}});
    operation = client.Patch(secret, kube::PatchKind::kMerge, patch, {}, std::move(on_done));
  }

  Json NewSecret(const CertificateSet& set) const {
    Json data = DataOf(set);
    std::erase_if(data.members(),
                  [](const Json::Member& member) { return member.second.is_null(); });
    return Json::MakeObject(
        {{"apiVersion", Json::String("v1")},
         {"kind", Json::String("Secret")},
         {"metadata", Json::MakeObject({{"name", Json::String(options.secret)},
                                        {"namespace", Json::String(options.ns)}})},
         {"type", Json::String("Opaque")},
         {"data", std::move(data)}});
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
  const kube::ObjectRef secret;
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

}  // namespace tessera::scheduler
