// SPDX-License-Identifier: Apache-2.0
#include "src/kube/type_catalog.h"

#include <gtest/gtest.h>

#include <optional>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {

constexpr char kApps[] = R"({"kind":"APIResourceList","resources":[
  {"name":"daemonsets","namespaced":true,"kind":"DaemonSet"},
  {"name":"daemonsets/status","namespaced":true,"kind":"DaemonSet"}]})";

class TypeCatalogTest : public ::testing::Test {
 protected:
  Result<ResourceType> Find(const std::string& version, const std::string& kind) {
    std::optional<Result<ResourceType>> type;
    const Operation operation = types_->Find(version, kind, [&](auto t) { type = t; });
    EXPECT_FALSE(type.has_value());
    EXPECT_TRUE(runner_.RunUntil([&] { return type.has_value(); }));
    return *type;
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  testing::FakeApiServer server_{io_, runner_};
  Client client_{io_, runner_, server_.config(), {.max_attempts = 1}};
  std::unique_ptr<TypeCatalog> types_ = std::make_unique<TypeCatalog>(client_);
};

TEST_F(TypeCatalogTest, RemembersTheServersTypes) {
  server_.Put("/apis/apps/v1", ParseJson(kApps).value());
  const auto type = Find("apps/v1", "DaemonSet");
  EXPECT_EQ(CollectionPath(type.value(), "ns"), "/apis/apps/v1/namespaces/ns/daemonsets");
  EXPECT_TRUE(Find("apps/v1", "DaemonSet").ok());
  EXPECT_EQ(server_.paths().size(), 1u);
  EXPECT_EQ(Find("apps/v2", "DaemonSet").status().code(), Code::kNotFound);
}

TEST_F(TypeCatalogTest, QueriesAMissingKindAgain) {
  const Status missing = Find("example.com/v1", "Thing").status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_NE(missing.message().find("no Thing of example.com/v1"), std::string::npos);
  server_.Put("/apis/example.com/v1",
              ParseJson(R"({"resources":[{"name":"things","kind":"Thing"}]})").value());
  EXPECT_EQ(CollectionPath(Find("example.com/v1", "Thing").value(), "ns"),
            "/apis/example.com/v1/things");
}

TEST_F(TypeCatalogTest, ReportsAServerThatRejectsDiscovery) {
  server_.SetFault([](const net::Request&, const net::HttpServer::Reply& reply) {
    reply(net::TextResponse(403, "no"));
    return true;
  });
  EXPECT_EQ(Find("apps/v1", "DaemonSet").status().code(), Code::kPermissionDenied);
  EXPECT_EQ(Find("", "DaemonSet").status().code(), Code::kInvalidArgument);
}

TEST_F(TypeCatalogTest, CallsNothingAfterItIsDestroyed) {
  server_.Put("/apis/apps/v1", ParseJson(kApps).value());
  EXPECT_TRUE(Find("apps/v1", "DaemonSet").ok());
  bool called = false;
  const Operation operation = types_->Find("apps/v1", "DaemonSet", [&](auto) { called = true; });
  types_.reset();
  runner_.RunFor(std::chrono::milliseconds(20));
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace tessera::kube
