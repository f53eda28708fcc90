// SPDX-License-Identifier: Apache-2.0
// Writes the status of the resource Tessera, only if it differs from what the server has.
//
// Threads: the client's runner. Ownership: the client outlives the writer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/kube/client.h"
#include "src/kube/metadata_object.h"
#include "src/operator/metrics.h"
#include "src/operator/resource_status.h"

namespace tessera::operators {

class StatusWriter {
 public:
  using Done = std::function<void(const Status& status)>;
  // The status stands in the server; `changes` are those that were written now.
  using OnPublished =
      std::function<void(const StatusInput& input, const std::vector<StatusChange>& changes)>;

  StatusWriter(kube::Client& client, kube::BeforeSend before_send, OperatorMetrics& metrics,
               OnPublished on_published);
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;

  // A resource that is gone is no error.
  void Write(const kube::JsonObject& resource, const StatusInput& input, Done done);

 private:
  void Send(const kube::JsonObject& resource, Json status, const StatusInput& input,
            std::vector<StatusChange> changes, Done done);

  kube::Client& client_;
  const kube::BeforeSend before_send_;
  OperatorMetrics& metrics_;
  const OnPublished on_published_;
  std::string written_;       // status that was written last
  std::string written_over_;  // over this version of the resource
  kube::Operation write_;
};

}  // namespace tessera::operators
