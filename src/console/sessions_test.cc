// SPDX-License-Identifier: Apache-2.0
// Sessions against a fake of the review API, because a real API server caches tokens and answers
// without faults.
#include "src/console/sessions.h"

#include <gtest/gtest.h>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

using SessionPtr = std::shared_ptr<WebSession>;

class WebSessionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      Answer(request, reply);
      return true;
    });
    sessions_ = std::make_unique<WebSessions>(io_, runner_, server_.config(), [] {
      return std::set<std::string>{"team-a", "team-b"};
    });
    sessions_->set_on_changed([this](const WebSession& session) {
      changes_.push_back(session.ended ? "end" : session.rights.Key());
    });
  }

  void Answer(const net::Request& request, const net::HttpServer::Reply& reply) {
    ++requests_;
    const Json body = ParseJson(request.body).value();
    const auto respond = [&](int status, const std::string& text) {
      reply({status, {{"Content-Type", "application/json"}}, text});
    };
    if (!token_is_valid_) return respond(401, "{}");
    const Json* spec = body.Find("spec");
    if (spec == nullptr) {
      return respond(201, R"({"status":{"userInfo":{"username":")" + user_ + "\"}}}");
    }
    const Json* attributes = spec->Find("resourceAttributes");
    const std::string subresource = attributes->StringAt("subresource").value_or("");
    const std::string resource = attributes->StringAt("resource").value() +
                                 (subresource.empty() ? "/" : "/" + subresource + "/") +
                                 attributes->StringAt("namespace").value_or("");
    if (resource == failing_) return respond(403, "{}");
    const bool allowed = allowed_.contains(resource);
    respond(201, fmt::format(R"({{"status":{{"allowed":{}}}}})", allowed));
  }

  SessionPtr LogIn() {
    std::optional<Result<SessionPtr>> session;
    sessions_->LogIn("t", [&](Result<SessionPtr> result) { session = std::move(result); });
    EXPECT_TRUE(runner_.RunUntil([&] { return session.has_value(); }));
    EXPECT_TRUE(session->ok()) << session->status().ToString();
    return **session;
  }
  Code CodeOfRights(const SessionPtr& session) {
    std::optional<Code> code;
    sessions_->WithRights(session,
                          [&](const Result<SessionPtr>& result) { code = result.status().code(); });
    EXPECT_TRUE(runner_.RunUntil([&] { return code.has_value(); }));
    return *code;
  }

  net::testing::ShiftedRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  std::set<std::string> allowed_ = {"nodes/", "pods/team-a"};
  std::string failing_;  // the review that is answered with an error
  std::string user_ = "ann";
  bool token_is_valid_ = true;
  int requests_ = 0;
  std::vector<std::string> changes_;
  std::unique_ptr<WebSessions> sessions_;
};

TEST_F(WebSessionsTest, ReadTheRightsOfTheUser) {
  const SessionPtr session = LogIn();
  EXPECT_EQ(session->user, "ann");
  EXPECT_EQ(session->rights.Key(), "nodes;team-a,");
  EXPECT_FALSE(session->rights.agents);
  EXPECT_TRUE(changes_.empty());
  EXPECT_EQ(sessions_->Find(session->id), session);
  allowed_.insert("pods/proxy/tessera-system");
  EXPECT_TRUE(LogIn()->rights.agents);
}

TEST_F(WebSessionsTest, RequestsOfAStaleSessionShareOneReview) {
  const SessionPtr session = LogIn();
  const int of_login = requests_;
  runner_.Advance(minutes(2));
  allowed_.erase("nodes/");
  int answered = 0;
  for (int i = 0; i < 5; ++i) {
    sessions_->WithRights(session, [&](const Result<SessionPtr>& result) {
      EXPECT_TRUE(result.ok());
      EXPECT_FALSE((*result)->rights.nodes);
      ++answered;
    });
  }
  EXPECT_TRUE(runner_.RunUntil([&] { return answered == 5; }));
  EXPECT_EQ(requests_, 2 * of_login);
  EXPECT_EQ(changes_, std::vector<std::string>{";team-a,"});
}

TEST_F(WebSessionsTest, AFailedReviewLeavesTheRights) {
  const SessionPtr session = LogIn();
  runner_.Advance(minutes(2));
  allowed_ = {};
  failing_ = "nodes/";
  user_ = "bob";
  EXPECT_NE(CodeOfRights(session), Code::kOk);
  runner_.RunFor(std::chrono::milliseconds(100));  // until the other answers have arrived
  EXPECT_EQ(session->rights.Key(), "nodes;team-a,");
  EXPECT_EQ(session->user, "ann");
  EXPECT_TRUE(changes_.empty());
}

TEST_F(WebSessionsTest, RejectedTokenEndsTheSessionForAllWaitingRequests) {
  const SessionPtr session = LogIn();
  runner_.Advance(minutes(2));
  token_is_valid_ = false;
  std::vector<Code> codes;
  for (int i = 0; i < 2; ++i) {
    sessions_->WithRights(session, [&](const Result<SessionPtr>& result) {
      codes.push_back(result.status().code());
    });
  }
  EXPECT_TRUE(runner_.RunUntil([&] { return codes.size() == 2; }));
  EXPECT_EQ(codes, std::vector<Code>(2, Code::kUnauthenticated));
  EXPECT_TRUE(session->ended);
  EXPECT_EQ(sessions_->Find(session->id), nullptr);
  EXPECT_EQ(changes_, std::vector<std::string>{"end"});
}

TEST_F(WebSessionsTest, AReviewThatOutlastsItsSessionAnswersUnauthenticated) {
  const SessionPtr session = LogIn();
  runner_.Advance(minutes(2));
  std::optional<Code> code;
  sessions_->WithRights(session,
                        [&](const Result<SessionPtr>& result) { code = result.status().code(); });
  sessions_->End(session);
  EXPECT_TRUE(runner_.RunUntil([&] { return code.has_value(); }));
  EXPECT_EQ(*code, Code::kUnauthenticated);
}

TEST_F(WebSessionsTest, EveryEndIsReported) {
  const SessionPtr unused = LogIn();
  runner_.Advance(minutes(31));
  EXPECT_EQ(sessions_->Find(unused->id), nullptr);
  EXPECT_EQ(changes_.size(), 1U);
  const SessionPtr viewed = LogIn();
  for (int i = 0; i < 13; ++i) {
    runner_.Advance(hours(1));
    viewed->last_used_at = runner_.clock().Now();
    sessions_->Renew();
  }
  EXPECT_TRUE(viewed->ended);
  EXPECT_EQ(changes_, std::vector<std::string>(2, "end"));
}

TEST_F(WebSessionsTest, TheOldestSessionOfAUserEndsAtTheLimit) {
  user_ = "bob";
  const SessionPtr other = LogIn();
  user_ = "ann";
  std::vector<SessionPtr> sessions;
  for (size_t i = 0; i <= WebSessions::kMaxSessionsPerUser; ++i) {
    sessions.push_back(LogIn());
    EXPECT_EQ(sessions[0]->ended, i == WebSessions::kMaxSessionsPerUser) << i;
    runner_.Advance(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(sessions[1]->ended);
  EXPECT_FALSE(other->ended);
  EXPECT_EQ(sessions_->size(), WebSessions::kMaxSessionsPerUser + 1);
  EXPECT_EQ(changes_, std::vector<std::string>{"end"});
}

TEST_F(WebSessionsTest, ALastingSessionNeverEnds) {
  const SessionPtr session = LogIn();
  session->never_ends = true;
  runner_.Advance(hours(20));
  token_is_valid_ = false;
  EXPECT_EQ(CodeOfRights(session), Code::kUnauthenticated);
  sessions_->End(session);
  token_is_valid_ = true;
  EXPECT_EQ(CodeOfRights(session), Code::kOk);
  EXPECT_EQ(sessions_->Find(session->id), session);
  EXPECT_TRUE(changes_.empty());
}

}  // namespace
}  // namespace tessera::console
