// SPDX-License-Identifier: Apache-2.0
#include "src/net/certificate.h"
#include "src/net/testing/loopback.h"

namespace tessera::net::testing {
namespace {

// Valid from an hour ago for a day.
Validity Today() {
  const WallTime now = SystemClock().WallNow();
  return {now - std::chrono::hours(1), now + std::chrono::hours(23)};
}

}  // namespace

struct TestCa::Impl {
  CertificateAuthority authority = CertificateAuthority::Make("test authority", Today()).value();
};

TestCa::TestCa() : impl_(std::make_unique<Impl>()), certificate_(impl_->authority.certificate()) {}

TestCa::~TestCa() = default;

TestCa::Pair TestCa::Issue(const std::string& common_name,
                           const std::vector<std::string>& names) const {
  CertificatePair pair = impl_->authority.Issue(common_name, names, Today()).value();
  return {std::move(pair.certificate), std::move(pair.key)};
}

}  // namespace tessera::net::testing
