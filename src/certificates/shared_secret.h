// SPDX-License-Identifier: Apache-2.0
// A Secret that all replicas share. A write succeeds only on the version that was read, so of two
// concurrent writers one succeeds, and the other reads the result.
//
// Threads: the client's runner, which also runs the callbacks. The client must outlive the object.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/kube/client.h"

namespace tessera::certificates {

class SharedSecret {
 public:
  struct Content {
    bool exists = false;
    std::string resource_version;
    StringMap data;  // without values that cannot be decoded
    // "" if the key is missing.
    std::string Text(std::string_view key) const;
  };

  SharedSecret(kube::Client& client, std::string ns, std::string name);

  // A Secret that does not exist reads as empty.
  kube::Operation Read(std::function<void(const Result<Content>&)> on_done) const;
  // An empty text removes its key; keys not in `data` stay. ABORTED or ALREADY_EXISTS: another
  // replica has written since `found` was read.
  kube::Operation Write(const Content& found, const StringMap& data,
                        std::function<void(const Status&)> on_done) const;

  // "ns/name".
  std::string Name() const { return object_.ns + "/" + object_.name; }

 private:
  kube::Client& client_;
  const kube::ObjectRef object_;
};

// Whether Write failed because another replica was faster. The caller should then read again.
bool IsWriteConflict(const Status& status);

}  // namespace tessera::certificates
