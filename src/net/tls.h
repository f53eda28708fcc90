// SPDX-License-Identifier: Apache-2.0
// Certificates of clients and servers, re-read when they are rotated. TLS 1.2 and 1.3 through
// OpenSSL; who is trusted is said in the options, and the system's trust store is used only where
// SystemRoots() was put there.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tessera::net {

// PEM, either inline or in a file. A file is looked at before each new connection and read again
// when it was replaced, as Kubernetes does with mounted secrets.
struct PemSource {
  std::string file;
  std::string text;
  bool empty() const { return file.empty() && text.empty(); }
};

// The system's authorities: the file that $SSL_CERT_FILE names, else the first there is of those
// where distributions keep them. NOT_FOUND says where it has looked.
Result<PemSource> SystemRoots(const std::function<const char*(const char* name)>& getenv);

// What each side shows and whom it trusts.
struct TlsOptions {
  PemSource ca;           // a client: required unless `skip_verify`; a server: asks for a client's
                          // certificate and refuses those that the CA did not sign
  PemSource certificate;  // the chain; a server's is required
  PemSource key;
  std::string server_name;   // a client: the name to expect instead of the URL's host
  bool skip_verify = false;  // a client: for kubeconfigs with insecure-skip-tls-verify
};

// Whether a client can check servers with `ca`, or show `certificate`. The error says which file,
// or text, cannot be read or used.
Status CheckAuthorities(const PemSource& ca);
Status CheckClientPair(const PemSource& certificate, const PemSource& key);

// Inside the room: makes the SSL_CTX and keeps it until a file changes. Threads: one.
class TlsContextSource {
 public:
  enum class Side { kClient, kServer };
  TlsContextSource(Side side, TlsOptions options);

  // The context with what the files hold now. Connections that have the old one keep it.
  // Error: which file cannot be read or parsed.
  Result<std::shared_ptr<ssl_ctx_st>> Get();
  // Shows another certificate from the next connection on.
  void SetCertificate(PemSource certificate, PemSource key);
  // The same, and may also trust others.
  void SetOptions(TlsOptions options);
  const TlsOptions& options() const { return options_; }

 private:
  std::string Fingerprint() const;

  Side side_;
  TlsOptions options_;
  std::string fingerprint_;
  std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace tessera::net
