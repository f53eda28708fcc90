// SPDX-License-Identifier: Apache-2.0
#include "src/cli/pod_selection.h"

#include <utility>

#include "src/kube/informer.h"
#include "src/kube/objects.h"

namespace tessera::cli {

void PodSelection::Read(const std::string& ns, const std::string& selector, Done done) {
  pods_.clear();
  done_ = std::move(done);
  ReadPage({.type = kube::kPods, .ns = ns, .label_selector = selector});
}

void PodSelection::ReadPage(const kube::ListQuery& query) {
  listing_ = client_.List(query, [this, query](const Result<kube::ListPage>& page) {
    if (!page.ok()) return done_(page.status().Annotate("cannot list the pods of --selector"));
    for (const kube::RawObject& raw : page->items) {
      kube::PodObject pod;
      if (kube::DecodeObject(raw, {}, &pod).ok()) pods_.insert(kube::KeyOf(pod.meta));
    }
    if (page->continue_token.empty()) return done_(std::move(pods_));
    kube::ListQuery next = query;
    next.continue_token = page->continue_token;
    ReadPage(next);
  });
}

}  // namespace tessera::cli
