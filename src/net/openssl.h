// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. Owners of OpenSSL's objects, and its error messages.
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

// The first error in this thread's queue; clears the queue.
std::string OpenSslErrorText();

// A reader of `text`, which must outlive the reader.
BioPtr OpenText(std::string_view text);
// The next certificate of PEM text; null at its end and at invalid content.
X509Ptr NextCertificate(BIO* pem);
// Null if the text has no private key, or an encrypted one.
KeyPtr ReadPrivateKey(std::string_view pem);

// INVALID_ARGUMENT if it cannot be parsed.
Result<WallTime> TimeOf(const ASN1_TIME* time);

}  // namespace tessera::net
