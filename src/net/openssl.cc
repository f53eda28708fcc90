// SPDX-License-Identifier: Apache-2.0
#include "src/net/openssl.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>

namespace tessera::net {

std::string OpenSslErrorText() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (error == 0) return "no reason given";
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : fmt::format("OpenSSL error {:x}", error);
}

BioPtr OpenText(std::string_view text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

X509Ptr NextCertificate(BIO* pem) {
  return {PEM_read_bio_X509(pem, nullptr, nullptr, nullptr), &X509_free};
}

KeyPtr ReadPrivateKey(std::string_view pem) {
  // Without a callback OpenSSL would read the pass phrase of an encrypted key from the terminal or
  // from standard input.
  pem_password_cb* no_pass_phrase = [](char*, int, int, void*) { return -1; };
  return {PEM_read_bio_PrivateKey(OpenText(pem).get(), nullptr, no_pass_phrase, nullptr),
          &EVP_PKEY_free};
}

Result<WallTime> TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return Error(Code::kInvalidArgument, "the time of a certificate cannot be read");
  }
  return WallTime(std::chrono::seconds(::timegm(&parts)));
}

}  // namespace tessera::net
