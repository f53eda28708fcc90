// SPDX-License-Identifier: Apache-2.0
// Lists the objects of one type once, page by page, without a watch. Objects that cannot be decoded
// are skipped. Threads: the client's runner, which also runs the callbacks. Ownership: the client
// must outlive the lister. Included only in src/cli.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"

namespace tessera::cli {

template <typename T>
class ObjectLister {
 public:
  using Done = std::function<void(Result<std::vector<T>>)>;

  explicit ObjectLister(kube::Client& client, kube::KeptFields kept_fields = {})
      : client_(client), kept_fields_(std::move(kept_fields)) {}

  // Calls `done` once, but not after the lister is destroyed; a later Read cancels an earlier one.
  // `query.type` is that of T.
  void Read(kube::ListQuery query, Done done) {
    objects_.clear();
    done_ = std::move(done);
    query.type = T::kType;
    query.encoding = kube::Encoding::kProtobuf;
    ReadPage(query);
  }

 private:
  void ReadPage(const kube::ListQuery& query) {
    listing_ = client_.List(query, [this, query](const Result<kube::ListPage>& page) {
      if (!page.ok()) return std::exchange(done_, nullptr)(page.status());
      for (const kube::RawObject& raw : page->items) {
        T object;
        if (kube::DecodeObject(raw, kept_fields_, &object).ok()) {
          objects_.push_back(std::move(object));
        }
      }
      if (page->continue_token.empty()) {
        return std::exchange(done_, nullptr)(std::move(objects_));
      }
      kube::ListQuery next = query;
      next.continue_token = page->continue_token;
      ReadPage(next);
    });
  }

  kube::Client& client_;
  const kube::KeptFields kept_fields_;
  std::vector<T> objects_;
  Done done_;
  kube::Operation listing_;
};

}  // namespace tessera::cli
