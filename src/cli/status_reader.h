// SPDX-License-Identifier: Apache-2.0
// Reads the objects that `tessera status` judges. Threads, callbacks: the client's runner.
// Ownership: the client outlives it. Included only in src/cli.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/cli/status.h"
#include "src/kube/client.h"

namespace tessera::cli {

class StatusReader {
 public:
  using Done = std::function<void(Result<InstallationObjects>)>;

  explicit StatusReader(kube::Client& client) : client_(client) {}
  StatusReader(const StatusReader&) = delete;
  StatusReader& operator=(const StatusReader&) = delete;

  // Calls `done` once, and not after the reader is destroyed. Errors: those of listing pods and
  // nodes; an object that cannot be read is an error in its member alone.
  void Read(Done done);

 private:
  void ReadObjects();
  void List(const kube::ResourceType& type, std::vector<Json>* into, std::string continue_token,
            std::function<void()> next);
  void ReadMetrics();
  void Finish(Status status);

  kube::Client& client_;
  Done done_;
  InstallationObjects objects_;
  size_t unread_ = 0;
  std::vector<kube::Operation> operations_;
};

}  // namespace tessera::cli
