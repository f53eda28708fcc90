// SPDX-License-Identifier: Apache-2.0
#include "src/net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <array>

#include "src/base/file.h"
#include "src/net/openssl.h"

namespace tessera::net {
namespace {

constexpr size_t kMaxPemSize = 4 << 20;

std::string NameOf(const PemSource& source) { return source.file.empty() ? "inline" : source.file; }

Result<std::string> ReadPem(const PemSource& source) {
  if (source.file.empty()) return source.text;
  return ReadFile(source.file, kMaxPemSize);
}

Status AddAuthorities(SSL_CTX* context, const PemSource& ca) {
  ASSIGN_OR_RETURN(const std::string pem, ReadPem(ca));
  const BioPtr bio = OpenText(pem);
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  int count = 0;
  while (const X509Ptr certificate = NextCertificate(bio.get())) {
    if (X509_STORE_add_cert(store, certificate.get()) != 1) {
      return Error(Code::kInvalidArgument, "CA bundle {}: {}", NameOf(ca), OpenSslErrorText());
    }
    ++count;
  }
  ERR_clear_error();  // OpenSSL reports the end of the file as an error.
  // As in Go, and so in kubectl: a bundle may contain an intermediate authority without its root.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
  if (count > 0) return Status::Ok();
  return Error(Code::kInvalidArgument, "CA bundle {} holds no PEM certificate", NameOf(ca));
}

Status UseCertificate(SSL_CTX* context, const TlsOptions& options) {
  ASSIGN_OR_RETURN(const std::string chain_pem, ReadPem(options.certificate));
  const BioPtr chain = OpenText(chain_pem);
  const X509Ptr leaf = NextCertificate(chain.get());
  if (!leaf || SSL_CTX_use_certificate(context, leaf.get()) != 1) {
    return Error(Code::kInvalidArgument, "certificate {}: {}", NameOf(options.certificate),
                 OpenSslErrorText());
  }
  while (const X509Ptr next = NextCertificate(chain.get())) {
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) break;
  }
  ERR_clear_error();
  ASSIGN_OR_RETURN(const std::string key_pem, ReadPem(options.key));
  const KeyPtr key = ReadPrivateKey(key_pem);
  if (!key) {
    ERR_clear_error();
    return Error(Code::kInvalidArgument, "private key {}: no PEM private key, or an encrypted one",
                 NameOf(options.key));
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return Error(Code::kInvalidArgument, "private key {} does not match certificate {}: {}",
                 NameOf(options.key), NameOf(options.certificate), OpenSslErrorText());
  }
  return Status::Ok();
}

// The first of the server's protocols that the client offers (RFC 7301). A client that offers none
// of them gets HTTP/1.1.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned offered_size, void*) {
  static constexpr unsigned char kProtocols[] = "\x02h2\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kProtocols, sizeof(kProtocols) - 1, offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Status SetUp(SSL_CTX* context, TlsContextSource::Side side, const TlsOptions& options) {
  // TLS 1.2 is also the API server's default (--tls-min-version).
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const bool server = side == TlsContextSource::Side::kServer;
  if (server) {
    // Sessions would occupy memory for peers that rarely return.
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    const unsigned char id[] = "tessera";
    SSL_CTX_set_session_id_context(context, id, sizeof(id) - 1);
    if (options.http2) SSL_CTX_set_alpn_select_cb(context, &ChooseProtocol, nullptr);
  }
  const bool verify = server ? !options.ca.empty() : !options.skip_verify;
  int mode = verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE;
  if (server && verify) mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  SSL_CTX_set_verify(context, mode, nullptr);
  if (verify && options.ca.empty()) {
    return Error(Code::kInvalidArgument, "no CA is set to check the server's certificate");
  }
  if (verify) RETURN_IF_ERROR(AddAuthorities(context, options.ca));
  if (server || !options.certificate.empty()) RETURN_IF_ERROR(UseCertificate(context, options));
  return Status::Ok();
}

// The list of Go's crypto/x509, and so of kubectl: Debian, Fedora and RHEL 6, openSUSE, OpenELEC,
// RHEL 7, Alpine.
constexpr std::array kRootFiles = {"/etc/ssl/certs/ca-certificates.crt",
                                   "/etc/pki/tls/certs/ca-bundle.crt",
                                   "/etc/ssl/ca-bundle.pem",
                                   "/etc/pki/tls/cacert.pem",
                                   "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                   "/etc/ssl/cert.pem"};
constexpr const char* kRootFileVariable = "SSL_CERT_FILE";

}  // namespace

Result<PemSource> SystemRoots(const std::function<const char*(const char* name)>& getenv) {
  const char* from_env = getenv(kRootFileVariable);
  if (from_env != nullptr && *from_env != '\0') {
    if (::access(from_env, R_OK) == 0) return PemSource{.file = from_env};
    return Status::FromErrno(fmt::format("{} of ${}", from_env, kRootFileVariable), errno);
  }
  for (const char* file : kRootFiles) {
    if (::access(file, R_OK) == 0) return PemSource{.file = file};
  }
  return Error(Code::kNotFound, "the system has no authorities: tried {}",
               fmt::join(kRootFiles, ", "));
}

Status CheckAuthorities(const PemSource& ca) {
  return TlsContextSource(TlsContextSource::Side::kClient, {.ca = ca}).Get().status();
}

Status CheckClientPair(const PemSource& certificate, const PemSource& key) {
  const TlsOptions options{.certificate = certificate, .key = key, .skip_verify = true};
  return TlsContextSource(TlsContextSource::Side::kClient, options).Get().status();
}

TlsContextSource::TlsContextSource(Side side, TlsOptions options)
    : side_(side), options_(std::move(options)) {}

std::string TlsContextSource::Fingerprint() const {
  return FileFingerprint(options_.ca.file) + ";" + FileFingerprint(options_.certificate.file) +
         ";" + FileFingerprint(options_.key.file);
}

Result<std::shared_ptr<SSL_CTX>> TlsContextSource::Get() {
  std::string fingerprint = Fingerprint();
  if (context_ && fingerprint == fingerprint_) return context_;
  const auto* method = side_ == Side::kServer ? TLS_server_method() : TLS_client_method();
  std::shared_ptr<SSL_CTX> fresh(SSL_CTX_new(method), &SSL_CTX_free);
  if (!fresh) return Error(Code::kInternal, "TLS: {}", OpenSslErrorText());
  const Status status = SetUp(fresh.get(), side_, options_);
  // A new certificate may be in place before its key: keeps the old pair until the next call.
  if (!status.ok() && context_) return context_;
  if (!status.ok()) return status.Annotate("TLS");
  context_ = fresh;
  fingerprint_ = std::move(fingerprint);
  return fresh;
}

void TlsContextSource::SetCertificate(PemSource certificate, PemSource key) {
  TlsOptions options = options_;
  options.certificate = std::move(certificate);
  options.key = std::move(key);
  SetOptions(std::move(options));
}

void TlsContextSource::SetOptions(TlsOptions options) {
  options_ = std::move(options);
  context_.reset();
}

}  // namespace tessera::net
