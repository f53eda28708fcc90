// SPDX-License-Identifier: Apache-2.0
// Inside the room: OpenSSL's objects with their owners, and its words for what went wrong.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::net {

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// The first error of this thread's queue, which is empty afterwards.
std::string OpenSslWords();

// To read from; `text` must outlive it.
BioPtr OpenText(std::string_view text);
// The next certificate, or key, of PEM text; null at its end and at what is none.
X509Ptr NextCertificate(BIO* pem);
KeyPtr ReadPrivateKey(std::string_view pem);

// INVALID_ARGUMENT: it cannot be read.
Result<WallTime> TimeOf(const ASN1_TIME* time);

}  // namespace tessera::net
