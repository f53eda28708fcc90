// SPDX-License-Identifier: Apache-2.0
// A whole agent, without kubelet and API server, on the simulated driver: all of its sessions with
// the driver are in one process, as on a node.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "src/agent/agent.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool Within(Duration limit, const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

class RunningAgent {
 public:
  RunningAgent(const sim::testing::SimNode& node, const std::string& dir) {
    options_.resource = "nvidia.com/gpu";
    options_.driver_root = node.driver_root();
    options_.dev_root = node.dev_root();
    options_.validations_dir = dir + "/validations";
    options_.state_dir = dir + "/state";
    options_.grant_socket = dir + "/grant.sock";
    options_.metrics_address = "127.0.0.1:0";
    options_.collect_interval = milliseconds(100);
    const Status completed = CompleteOptions(&options_);
    EXPECT_TRUE(completed.ok()) << completed.ToString();
    thread_ = std::thread([this] { runner_.Run(); });
    runner_.Post([this] {
      agent_ = std::make_unique<Agent>(&runner_, &io_, options_);
      const Status started = agent_->Start();
      EXPECT_TRUE(started.ok()) << started.ToString();
    });
  }
  ~RunningAgent() {
    runner_.Post([this] {
      agent_.reset();
      runner_.Quit();
    });
    thread_.join();
  }

  bool IsReady() const { return PathExists(options_.validations_dir + "/driver-ready"); }

 private:
  const ScopedLogSinkForTest quiet_{[](std::string_view) {}};
  AgentOptions options_;
  EpollTaskRunner runner_;
  net::IoThread io_;
  std::unique_ptr<Agent> agent_;
  std::thread thread_;
};

// NVML counts the GPUs when the first session of the process starts. A GPU without a device node
// is not counted.
TEST(AgentDriverTest, FindsGpusWhoseDeviceNodesAreMadeLate) {
  const sim::testing::SimNode node({.gpus = 4});
  const TempDir dir("agent");
  const std::string nodes = node.dev_root() + "/dev";
  std::filesystem::rename(nodes, nodes + ".away");
  RunningAgent agent(node, dir.path());
  EXPECT_FALSE(Within(seconds(1), [&] { return agent.IsReady(); }));
  std::filesystem::rename(nodes + ".away", nodes);
  EXPECT_TRUE(Within(seconds(20), [&] { return agent.IsReady(); }))
      << "another session keeps the driver from counting again";
}

}  // namespace
}  // namespace tessera::agent
