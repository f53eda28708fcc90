// SPDX-License-Identifier: Apache-2.0
#include "src/cli/gatherer.h"

#include <utility>

#include "api/names.h"
#include "src/cli/session.h"
#include "src/kube/pod_page.h"

namespace tessera::cli {

Gatherer::Gatherer(kube::Config config, const ClusterOptions& options, Duration patience)
    : patience_(patience),
      client_(io_, runner_, std::move(config), ClientOptionsOf(options.timeout())) {}

void Gatherer::Add(Start start) { waiting_.push_back(std::move(start)); }

void Gatherer::List(kube::ListQuery query, Result<std::vector<Json>>* into) {
  *into = Status(Code::kDeadlineExceeded, "no answer in time");
  Add([this, query = std::move(query), into](std::function<void()> done) {
    ListPage(query, into, std::move(done));
    return kube::Operation();
  });
}

void Gatherer::ListPage(const kube::ListQuery& query, Result<std::vector<Json>>* into,
                        std::function<void()> done) {
  operations_.push_back(client_.List(
      query, [this, query, into, done = std::move(done)](const Result<kube::ListPage>& page) {
        if (!page.ok()) {
          *into = page.status();
          return done();
        }
        if (query.continue_token.empty()) *into = std::vector<Json>();
        for (const kube::RawObject& item : page->items) {
          if (item.json() != nullptr) (*into)->push_back(*item.json());
        }
        if (page->continue_token.empty() || (*into)->size() >= kMaxObjects) return done();
        kube::ListQuery next = query;
        next.continue_token = page->continue_token;
        ListPage(next, into, done);
      }));
}

void Gatherer::Get(kube::ObjectRef object, Result<Json>* into) {
  *into = Status(Code::kDeadlineExceeded, "no answer in time");
  Add([this, object = std::move(object), into](std::function<void()> done) {
    return client_.Get(object, [into, done = std::move(done)](Result<Json> answer) {
      *into = std::move(answer);
      done();
    });
  });
}

void Gatherer::Page(const std::string& pod, std::string_view port, std::string_view path,
                    Result<std::string>* into) {
  Text(kube::PodPagePath(kube::Pod(std::string(names::kSystemNamespace), pod), port, path),
       kube::kMaxPodPage, into);
}

void Gatherer::Text(std::string target, size_t max_bytes, Result<std::string>* into) {
  *into = Status(Code::kDeadlineExceeded, "no answer in time");
  Add([this, target = std::move(target), max_bytes, into](std::function<void()> done) {
    return kube::ReadText(client_, target, max_bytes, patience_,
                          [into, done = std::move(done)](Result<std::string> text) {
                            *into = std::move(text);
                            done();
                          });
  });
}

void Gatherer::StartNext() {
  while (!waiting_.empty() && active_ < kParallel) {
    const Start start = std::move(waiting_.front());
    waiting_.pop_front();
    ++active_;
    operations_.push_back(start([this, weak = weak_.Get()] {
      // Posted, because the operation must not end inside its own callback.
      runner_.Post([this, weak] {
        if (!weak) return;
        --active_;
        StartNext();
      });
    }));
  }
  if (active_ == 0) runner_.Quit();
}

void Gatherer::Wait(Duration limit) {
  if (waiting_.empty()) return;
  const auto round = std::make_shared<bool>(true);
  runner_.Post([this] { StartNext(); });
  runner_.PostDelayed(limit, [this, still = std::weak_ptr<bool>(round)] {
    if (!still.expired()) runner_.Quit();
  });
  runner_.Run();
  waiting_.clear();
  operations_.clear();
  active_ = 0;
}

}  // namespace tessera::cli
