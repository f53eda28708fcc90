// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/testing/command_fixture.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

class VersionCommandTest : public testing::CommandFixture {
 protected:
  // A pod of a component. `ports`: the items of the container's list "ports".
  void PutPod(const std::string& component, const std::string& ports,
              const std::string& init_containers = "") {
    server_.Put(
        kPods + component,
        ParseJson(
            fmt::format(R"({{"metadata":{{"name":"{0}","namespace":"tessera-system","labels":)"
                        R"({{"app.kubernetes.io/name":"tessera-{0}"}}}},"spec":{{"nodeName":"n1",)"
                        R"("initContainers":[{2}],)"
                        R"("containers":[{{"image":"tessera.dev/{0}:v3","ports":[{1}]}}]}}}})",
                        component, ports, init_containers))
            .value());
  }
  void PutMetrics(const std::string& pod, const std::string& port) {
    pages_[kPods + pod + ":" + port + "/proxy/metrics"] =
        fmt::format("tessera_build_info{{version=\"of-{}\"}} 1\n", pod);
  }
  static constexpr const char* kPods = "/api/v1/namespaces/tessera-system/pods/";
  std::map<std::string, std::string> pages_;
};

TEST_F(VersionCommandTest, AsksEachPodAtItsOwnPortForMetrics) {
  server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
    const std::string path(request.path());
    if (path.find("/proxy/") == std::string::npos && path != "/version") return false;
    if (path == "/version") {
      reply(net::TextResponse(200, R"({"gitVersion":"v1.36.0"})"));
    } else {
      const auto page = pages_.find(path);
      reply(page == pages_.end() ? net::TextResponse(503, "connection refused")
                                 : net::TextResponse(200, page->second));
    }
    return true;
  });
  PutPod("agent",
         R"({"name":"gpu-manager","containerPort":5678},)"
         R"({"name":"metrics","containerPort":9400})",
         R"({"name":"install-runtime","image":"tessera.dev/agent:v3"})");
  PutPod("scheduler", R"({"name":"metrics","containerPort":9411})");
  PutPod("operator", R"({"name":"metrics","containerPort":9412})");
  PutPod("console", R"({"name":"web","containerPort":8090})");
  PutMetrics("agent", "9400");
  PutMetrics("scheduler", "9411");
  PutMetrics("operator", "9412");
  server_.SetCollection("nodes", "Node", {});
  const testing::CommandResult ran =
      Run({"version", "-o", "custom-columns=C:.metadata.name,V:.version", "--no-headers"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("kubernetes          v1.36.0\n"));
  EXPECT_THAT(ran.out, HasSubstr("tessera-agent       of-agent\n"));
  EXPECT_THAT(ran.out, HasSubstr("tessera-console     image tessera.dev/console:v3\n"));
  EXPECT_THAT(ran.out, HasSubstr("tessera-operator    of-operator\n"));
  EXPECT_THAT(ran.out, HasSubstr("tessera-runtime     of-agent\n"));
  EXPECT_THAT(ran.out, HasSubstr("tessera-scheduler   of-scheduler\n"));
}

}  // namespace
}  // namespace tessera::cli
