// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/certificate_keeper.h"

#include <utility>

#include "src/base/log.h"
#include "src/base/status.h"
#include "src/certificates/rounds.h"
#include "src/certificates/shared_secret.h"
#include "src/formats/base64.h"

namespace tessera::certificates {
namespace {

// Keys of the Secret. Secrets of type kubernetes.io/tls also have ca.crt, tls.crt and tls.key.
constexpr std::string_view kBundle = "ca.crt";
constexpr std::string_view kCertificate = "tls.crt";
constexpr std::string_view kKey = "tls.key";
constexpr std::string_view kNextCertificate = "next.crt";
constexpr std::string_view kNextKey = "next.key";

// A value that cannot be decoded counts as missing; NextStep replaces it.
CertificateSet SetOf(const SharedSecret::Content& found) {
  return {.bundle = found.Text(kBundle),
          .serving = {found.Text(kCertificate), found.Text(kKey)},
          .next = {found.Text(kNextCertificate), found.Text(kNextKey)}};
}

StringMap DataOf(const CertificateSet& set) {
  return {{std::string(kBundle), set.bundle},
          {std::string(kCertificate), set.serving.certificate},
          {std::string(kKey), set.serving.key},
          {std::string(kNextCertificate), set.next.certificate},
          {std::string(kNextKey), set.next.key}};
}

Json PatchOperation(const char* op, std::string path, Json value) {
  return Json::MakeObject(
      {{"op", Json::String(op)}, {"path", Json::String(path)}, {"value", std::move(value)}});
}

void LogStep(const std::string& step) { Log(Severity::kInfo, "webhook: " + step); }

void LogError(const Status& status) {
  Log(Severity::kWarning, "webhook: cannot create, renew or publish the certificate, retrying",
      {{"error", status.ToString()}});
}

}  // namespace

std::optional<Json> BundlePatch(const Json& configuration, const std::string& bundle) {
  const Json* webhooks = configuration.Find("webhooks");
  if (webhooks == nullptr || !webhooks->is_array()) return std::nullopt;
  const std::string wanted = Base64Encode(bundle);
  Json::Array patch;
  for (size_t i = 0; i < webhooks->items().size(); ++i) {
    const Json& webhook = webhooks->items()[i];
    const Json* name = webhook.Find("name");
    const Json* client = webhook.Find("clientConfig");
    if (name == nullptr || client == nullptr || !client->is_object()) continue;
    if (client->StringAt("caBundle").value_or("") == wanted) continue;
    const std::string path = fmt::format("/webhooks/{}", i);
    patch.push_back(PatchOperation("test", path + "/name", *name));
    // "add" also replaces an existing value.
    patch.push_back(PatchOperation("add", path + "/clientConfig/caBundle", Json::String(wanted)));
  }
  if (patch.empty()) return std::nullopt;
  return Json::MakeArray(std::move(patch));
}

// One round: reads the Secret, takes a step if one is due, checks each configuration.
struct CertificateKeeper::Impl {
  Impl(kube::Client& c, CertificateKeeperOptions o, OnCertificate f)
      : client(c),
        options(std::move(o)),
        on_certificate(std::move(f)),
        secret(c, options.ns, options.secret),
        rounds(c.runner(), options.period, [this] { ReadSecret(); }) {}

  void Fail(const Status& status) {
    LogError(status);
    rounds.Fail();
  }

  void ReadSecret() {
    operation = secret.Read([this](const Result<SharedSecret::Content>& found) {
      found.ok() ? OnSecret(*found) : Fail(found.status());
    });
  }

  void OnSecret(const SharedSecret::Content& found) {
    const CertificateSet set = SetOf(found);
    const bool is_published = set.bundle == published_bundle;
    const auto step =
        NextStep(set, client.runner().clock().WallNow(), is_published, options.certificate);
    if (!step.ok()) return Fail(step.status());
    if (!*step) return Adopt(set);
    operation =
        secret.Write(found, DataOf((*step)->set), [this, step = **step](const Status& status) {
          if (IsWriteConflict(status)) return rounds.Fail();
          if (!status.ok()) return Fail(status);
          LogStep(step.description);
          Adopt(step.set);
        });
  }

  void Adopt(const CertificateSet& set) {
    if (!(set.serving == served)) {
      served = set.serving;
      on_certificate(served);
    }
    bundle = set.bundle;
    had_error = false;
    CheckConfiguration(0);
  }

  void CheckConfiguration(size_t index) {
    if (index == options.configurations.size()) return FinishRound();
    operation =
        client.Get(options.configurations[index], [this, index](const Result<Json>& answer) {
          if (answer.ok()) return PatchBundle(index, *answer);
          if (answer.status().code() != Code::kNotFound) ReportError(answer.status());
          CheckConfiguration(index + 1);
        });
  }

  void PatchBundle(size_t index, const Json& configuration) {
    const auto patch = BundlePatch(configuration, bundle);
    if (!patch) return CheckConfiguration(index + 1);
    const kube::ObjectRef& object = options.configurations[index];
    operation = client.Patch(object, kube::PatchKind::kJson, *patch, {},
                             [this, index, &object](const Result<Json>& answer) {
                               if (answer.ok()) {
                                 LogStep("wrote the bundle into " + kube::PathOf(object));
                               } else {
                                 ReportError(answer.status());
                               }
                               CheckConfiguration(index + 1);
                             });
  }

  void ReportError(const Status& status) {
    had_error = true;
    LogError(status);
  }

  void FinishRound() {
    if (had_error) return rounds.Fail();
    // A certificate may be served only after every configuration was seen with its bundle.
    published_bundle = bundle;
    rounds.Succeed();
  }

  kube::Client& client;
  const CertificateKeeperOptions options;
  const OnCertificate on_certificate;
  const SharedSecret secret;
  net::CertificatePair served;
  std::string bundle;            // to publish in the configurations
  std::string published_bundle;  // last seen in all configurations
  bool had_error = false;        // in this round's configurations
  kube::Operation operation;
  PeriodicRounds rounds;
};

CertificateKeeper::CertificateKeeper(kube::Client& client, CertificateKeeperOptions options,
                                     OnCertificate on_certificate)
    : impl_(std::make_unique<Impl>(client, std::move(options), std::move(on_certificate))) {}

CertificateKeeper::~CertificateKeeper() = default;

}  // namespace tessera::certificates
