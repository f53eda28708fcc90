// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/extender_certificates.h"

#include <utility>

#include "src/certificates/certificate_plan.h"
#include "src/certificates/rounds.h"
#include "src/certificates/shared_secret.h"

namespace tessera::scheduler {
namespace {

using SecretContent = certificates::SharedSecret::Content;

// Keys of the authorities' Secret, and of kube-scheduler's Secret of type kubernetes.io/tls.
constexpr char kAuthority[] = "ca.crt", kAuthorityKey[] = "ca.key";
constexpr char kOlder[] = "older.crt", kOlderKey[] = "older.key";
constexpr char kBundle[] = "ca.crt", kCertificate[] = "tls.crt", kKey[] = "tls.key";

certificates::Authorities AuthoritiesIn(const SecretContent& found) {
  return {.newest = {found.Text(kAuthority), found.Text(kAuthorityKey)},
          .older = {found.Text(kOlder), found.Text(kOlderKey)}};
}

// A headless Service has the address "None", which is skipped.
std::vector<std::string> AddressesOf(const Json& service) {
  std::vector<std::string> addresses;
  for (const Json& each : ItemsAt(service, {"spec", "clusterIPs"})) {
    if (each.is_string() && each.string_value() != "None") {
      addresses.push_back(each.string_value());
    }
  }
  return addresses;
}

}  // namespace

// One round: reads or replaces the authorities, reads the Service's addresses, renews the served
// certificate, and writes kube-scheduler's Secret.
struct ExtenderCertificates::Impl {
  Impl(kube::Client& c, ExtenderCertificateOptions o, Delegate& d)
      : client(c),
        options(std::move(o)),
        delegate(d),
        authority_secret(c, options.ns, options.authority_secret),
        client_secret(c, options.ns, options.client_secret),
        rounds(c.runner(), options.period, [this] { ReadAuthorities(); }) {}

  WallTime Now() const { return client.runner().clock().WallNow(); }

  void Fail(const Status& status) {
    delegate.OnCertificateError(status);
    rounds.Fail();
  }
  // Retries after a write that failed or conflicted with a faster replica.
  void Retry(const Status& status) {
    certificates::IsWriteConflict(status) ? rounds.Fail() : Fail(status);
  }

  void ReadAuthorities() {
    operation = authority_secret.Read([this](const Result<SecretContent>& found) {
      found.ok() ? OnAuthorities(*found) : Fail(found.status());
    });
  }

  void OnAuthorities(const SecretContent& found) {
    const certificates::Authorities current = AuthoritiesIn(found);
    const auto next = certificates::NextAuthorities(current, Now(), options.authority);
    if (!next.ok()) return Fail(next.status());
    if (!*next) return Adopt(current);
    const certificates::Authorities& created = **next;
    operation = authority_secret.Write(
        found,
        {{kAuthority, created.newest.certificate},
         {kAuthorityKey, created.newest.key},
         {kOlder, created.older.certificate},
         {kOlderKey, created.older.key}},
        [this, created](const Status& status) {
          if (!status.ok()) return Retry(status);
          delegate.OnCertificateProgress("created an authority for the extender's certificates");
          Adopt(created);
        });
  }

  void Adopt(const certificates::Authorities& current) {
    authorities = current;
    operation = client.Get({kube::kServices, options.service, options.ns, ""},
                           [this](const Result<Json>& answer) {
                             if (answer.ok()) addresses = AddressesOf(*answer);
                             // The port is served even if the Service cannot be read. The
                             // certificate then lacks the addresses, but clients can connect by
                             // the Service's names.
                             if (!answer.ok() && answer.status().code() != Code::kNotFound) {
                               delegate.OnCertificateError(answer.status());
                             }
                             Serve();
                           });
  }

  void Serve() {
    std::vector<std::string> all_addresses = options.extra_addresses;
    all_addresses.insert(all_addresses.end(), addresses.begin(), addresses.end());
    const auto names = certificates::ServiceNames(options.service, options.ns, all_addresses);
    const auto next =
        certificates::NextServing(serving, authorities, names, Now(), options.authority);
    if (!next.ok()) return Fail(next.status());
    if (*next) serving = **next;
    if (*next || trusted != authorities.bundle()) {
      trusted = authorities.bundle();
      delegate.OnTls({.ca = {.text = trusted},
                      .certificate = {.text = serving.certificate},
                      .key = {.text = serving.key}});
    }
    operation = client_secret.Read([this](const Result<SecretContent>& found) {
      found.ok() ? OnClientSecret(*found) : Fail(found.status());
    });
  }

  void OnClientSecret(const SecretContent& found) {
    net::CertificatePair pair{found.Text(kCertificate), found.Text(kKey)};
    const auto next = certificates::NextClient(pair, authorities, Now(), options.authority);
    if (!next.ok()) return Fail(next.status());
    if (!*next && found.Text(kBundle) == authorities.bundle()) return rounds.Succeed();
    if (*next) pair = **next;
    operation = client_secret.Write(
        found,
        {{kBundle, authorities.bundle()}, {kCertificate, pair.certificate}, {kKey, pair.key}},
        [this](const Status& status) {
          if (!status.ok()) return Retry(status);
          delegate.OnCertificateProgress("wrote kube-scheduler's certificate into Secret " +
                                         client_secret.Name());
          rounds.Succeed();
        });
  }

  kube::Client& client;
  const ExtenderCertificateOptions options;
  Delegate& delegate;
  const certificates::SharedSecret authority_secret, client_secret;
  certificates::Authorities authorities;
  std::vector<std::string> addresses;  // addresses of the Service
  net::CertificatePair serving;
  std::string trusted;  // the CA bundle last passed to OnTls
  kube::Operation operation;
  certificates::PeriodicRounds rounds;
};

ExtenderCertificates::ExtenderCertificates(kube::Client& client, ExtenderCertificateOptions options,
                                           Delegate& delegate)
    : impl_(std::make_unique<Impl>(client, std::move(options), delegate)) {}

ExtenderCertificates::~ExtenderCertificates() = default;

}  // namespace tessera::scheduler
