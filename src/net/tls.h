// SPDX-License-Identifier: Apache-2.0
// Certificates of clients and servers, read again when they are rotated. TLS 1.2 and 1.3 through
// OpenSSL. Only the authorities in the options are trusted; SystemRoots() returns the system's
// authorities.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tessera::net {

// PEM, either inline or in a file. A file is checked before each new connection and read again
// after it was replaced, as Kubernetes does with mounted secrets.
struct PemSource {
  std::string file;
  std::string text;
  bool empty() const { return file.empty() && text.empty(); }
};

// The system's authorities: the file in $SSL_CERT_FILE, else the first existing file of those that
// distributions use. NOT_FOUND lists these files.
Result<PemSource> SystemRoots(const std::function<const char*(const char* name)>& getenv);

// The certificate of one side, and the authorities that it trusts.
struct TlsOptions {
  // The trusted authorities. For a client, required unless `skip_verify`. A server with `ca`
  // rejects clients without a certificate that these authorities signed.
  PemSource ca;
  PemSource certificate;  // the chain; required for a server
  PemSource key;
  std::string server_name;   // for a client: the name to expect instead of the URL's host
  bool skip_verify = false;  // for a client: insecure-skip-tls-verify of a kubeconfig
  bool http2 = false;        // for a server: clients may choose HTTP/2 (ALPN)
};

// Whether a client can verify servers with `ca`, or authenticate with `certificate` and `key`. The
// error names the unreadable or invalid file or text.
Status CheckAuthorities(const PemSource& ca);
Status CheckClientPair(const PemSource& certificate, const PemSource& key);

// Used only in src/net. Creates the SSL_CTX and keeps it until a file changes. Threads: one.
class TlsContextSource {
 public:
  enum class Side { kClient, kServer };
  TlsContextSource(Side side, TlsOptions options);

  // The context for the current content of the files. Existing connections keep the old context.
  // The error names the file that cannot be read or parsed.
  Result<std::shared_ptr<ssl_ctx_st>> Get();
  // Uses another certificate for new connections.
  void SetCertificate(PemSource certificate, PemSource key);
  // Uses other options for new connections, possibly with other authorities.
  void SetOptions(TlsOptions options);

 private:
  std::string Fingerprint() const;

  Side side_;
  TlsOptions options_;
  std::string fingerprint_;
  std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace tessera::net
