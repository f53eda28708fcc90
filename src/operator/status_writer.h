// SPDX-License-Identifier: Apache-2.0
// Writes the status of the resource Tessera if it differs from the status in the API server.
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
  // Called when the API server has the status; `changes` are the changes of this write.
  using OnPublished =
      std::function<void(const StatusInput& input, const std::vector<StatusChange>& changes)>;

  StatusWriter(kube::Client& client, kube::BeforeSend before_send, OperatorMetrics& metrics,
               OnPublished on_published);
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;

  // If the resource no longer exists, `done` gets OK.
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
