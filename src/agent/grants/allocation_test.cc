// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/plugin_answers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "src/agent/grants/grant_description.h"
#include "src/base/file.h"
#include "src/formats/json.h"

namespace tessera::agent {
namespace {

using Ids = std::vector<std::string>;

constexpr const char* kResource = "nvidia.com/gpu";

std::string Uuid(int i) { return fmt::format("GPU-12345678-1234-1234-1234-12345678{:04}", i); }

std::shared_ptr<device::NodeInventory> Inventory(int gpus) {
  auto inventory = std::make_shared<device::NodeInventory>();
  for (int i = 0; i < gpus; ++i) {
    inventory->gpus.push_back({.uuid = Uuid(i), .index = i, .minor = i, .numa_node = i / 4});
  }
  inventory->links = device::LinkMatrix(gpus);
  return inventory;
}

// Grants exactly the GPUs that the IDs name.
class NamedGrants final : public KubeletGrants {
 public:
  explicit NamedGrants(const DeviceSet& set) : set_(set) {}
  void Allocate(const std::string&, const Ids& ids,
                std::function<void(Result<grant::Grant>)> done) override {
    std::vector<device::DeviceShare> shares;
    for (const std::string& id : ids) shares.push_back({.uuid = id, .compute = kWholeGpu});
    done(DescribeGrant({}, set_, shares));
  }
  void Check(const std::string&, const Ids&, std::function<void(Status)> done) override {
    done(Status::Ok());
  }

 private:
  const DeviceSet& set_;
};

class AllocationTest : public ::testing::Test {
 protected:
  PluginResponder LateResponder() const {
    return PluginResponder(kResource, PluginResponder::Ids::kGpus, &signer_, &clock_);
  }
  // The answer with --binding=allocate, with the GPUs that the IDs name.
  Result<ContainerAllocation> AllocateGpus(const Ids& ids, bool device_specs = false) {
    NamedGrants grants(set_);
    const PluginResponder answers(
        kResource, PluginResponder::Ids::kGpus, &signer_, &clock_, nullptr, &grants,
        {.pass_device_specs = device_specs, .dev_root_ctr_path = dev_.path()});
    Result<ContainerAllocation> got = Status(Code::kAborted, "later");
    answers.Answer(set_, ids,
                   [&](Result<ContainerAllocation> allocation) { got = std::move(allocation); });
    return got;
  }

  FakeClock clock_;
  grant::TokenSigner signer_{std::string(32, 'k')};
  DeviceSet set_{Inventory(8)};
  TempDir dev_;
};

TEST_F(AllocationTest, LateBindingGivesATokenAndNoDevices) {
  const auto allocation = LateResponder().Allocate(set_, {Uuid(3), Uuid(1), Uuid(3)});
  ASSERT_TRUE(allocation.ok());
  ASSERT_EQ(allocation->env.size(), 2u);
  const std::string& token = allocation->env.at("TESSERA_GRANT_NVIDIA_COM_GPU");
  EXPECT_EQ(signer_.Verify(kResource, token)->ids, (Ids{Uuid(3), Uuid(1)}));
  EXPECT_EQ(allocation->env.at("NVIDIA_VISIBLE_DEVICES"), "void");
  EXPECT_TRUE(allocation->devices.empty());
}

TEST_F(AllocationTest, UnknownIdIsRejectedInNvidiasWords) {
  const auto allocation = LateResponder().Allocate(set_, {Uuid(0), "nope"});
  EXPECT_EQ(allocation.status().code(), Code::kUnknown);
  EXPECT_EQ(allocation.status().message(),
            "invalid allocation request for \"nvidia.com/gpu\": invalid request: unknown device: "
            "nope");
}

TEST_F(AllocationTest, GpuWithoutAMinorIsOfferedAsUnhealthy) {
  auto inventory = Inventory(2);
  inventory->gpus[1].minor.reset();
  EXPECT_FALSE(DeviceSet(inventory).offers()[1].healthy);
}

TEST_F(AllocationTest, UuidThatIsNotUtf8IsNotOffered) {
  auto inventory = Inventory(2);
  inventory->gpus[1].uuid = "GPU-\xff\xfe";
  const DeviceSet set(inventory);
  EXPECT_EQ(set.offers().size(), 1u);
  EXPECT_EQ(set.rejected_uuids(), Ids{"4750552dfffe"});
  EXPECT_EQ(set.Find("GPU-\xff\xfe"), nullptr);
}

TEST_F(AllocationTest, ControlNodesAreGivenWhereTheyExist) {
  ASSERT_TRUE(MakeDirs(dev_.path() + "/dev").ok());
  ASSERT_TRUE(WriteFileAtomically(dev_.path() + "/dev/nvidiactl", "", 0600).ok());
  const auto allocation = AllocateGpus({Uuid(5)}, true);
  ASSERT_TRUE(allocation.ok());
  EXPECT_EQ(allocation->devices, (std::vector<DeviceSpec>{{"/dev/nvidiactl", "/dev/nvidiactl"},
                                                          {"/dev/nvidia5", "/dev/nvidia5"}}));
}

// The answers of NVIDIA's plugin to the same calls.
class AllocationOracleTest : public AllocationTest {
 protected:
  static Result<Json> Oracle(const std::string& name) {
    const char* given = std::getenv("TESSERA_ORACLES");
    const std::string dir = given != nullptr ? given : TESSERA_ORACLES_BESIDE_SOURCE;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(dir + "/deviceplugin/" + name));
    return ParseJson(text);
  }

  static std::vector<Ids> RequestsFor(const std::string& name) {
    if (name == "one") return {{Uuid(0)}};
    if (name == "two") return {{Uuid(0), Uuid(1)}};
    if (name == "two reversed") return {{Uuid(1), Uuid(0)}};
    if (name == "same id twice") return {{Uuid(0), Uuid(0)}};
    if (name == "two containers") return {{Uuid(0)}, {Uuid(1)}};
    if (name == "unknown id") return {{"GPU-00000000-dead-dead-dead-000000000000"}};
    if (name == "known and unknown") return {{Uuid(0), "nope"}};
    if (name == "all") {
      Ids all;
      for (int i = 0; i < 8; ++i) all.push_back(Uuid(i));
      return {all};
    }
    EXPECT_EQ(name, "no container");
    return {};
  }

  static void ExpectSame(const std::string& name, const Json& theirs,
                         const ContainerAllocation& ours) {
    const Json& env = *theirs.Find("envs");
    ASSERT_EQ(env.members().size(), ours.env.size()) << name;
    for (const auto& [variable, value] : ours.env)
      EXPECT_EQ(*env.StringAt(variable), value) << name;
    std::set<std::pair<std::string, std::string>> wanted, got;
    for (const Json& node : theirs.Find("devices")->items()) {
      EXPECT_EQ(*node.StringAt("permissions"), "rw");
      wanted.emplace(*node.StringAt("container_path"), *node.StringAt("host_path"));
    }
    for (const DeviceSpec& node : ours.devices) got.emplace(node.container_path, node.host_path);
    EXPECT_EQ(got, wanted) << name;
    EXPECT_TRUE(theirs.Find("mounts")->items().empty());
  }

  void Compare(const std::string& file, bool device_specs) {
    const Result<Json> oracle = Oracle(file);
    if (!oracle.ok()) GTEST_SKIP() << oracle.status().message() << ": set TESSERA_ORACLES";
    ASSERT_TRUE(MakeDirs(dev_.path() + "/dev").ok());
    for (const char* node : {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}) {
      ASSERT_TRUE(WriteFileAtomically(dev_.path() + "/dev/" + node, "", 0600).ok());
    }
    for (const auto& [name, theirs] : oracle->Find("Allocate")->members()) {
      // The kubelet never allocates zero devices. Our answer differs there: "void" gives no GPU.
      if (name == "none") continue;
      const std::vector<Ids> requests = RequestsFor(name);
      if (theirs.is_object()) {
        const auto ours = AllocateGpus(requests[0], device_specs);
        EXPECT_EQ(ours.status().message(), *theirs.Find("error")->StringAt("details"));
        EXPECT_EQ(InfoOf(ours.status().code()).name, *theirs.Find("error")->StringAt("code"));
        continue;
      }
      ASSERT_EQ(theirs.items().size(), requests.size()) << name;
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto ours = AllocateGpus(requests[i], device_specs);
        ASSERT_TRUE(ours.ok()) << name;
        ExpectSame(name, theirs.items()[i], *ours);
      }
    }
  }
};

TEST_F(AllocationOracleTest, EnvironmentEqualsNvidias) { Compare("a100-envvar.json", false); }
TEST_F(AllocationOracleTest, DeviceSpecsEqualNvidias) { Compare("a100-envvar-pds.json", true); }

TEST_F(AllocationOracleTest, PreferredAnswersAndErrorsEqualNvidias) {
  const Result<Json> oracle = Oracle("a100-envvar.json");
  if (!oracle.ok()) GTEST_SKIP() << oracle.status().message() << ": set TESSERA_ORACLES";
  Ids all;
  for (int i = 0; i < 8; ++i) all.push_back(Uuid(i));
  const PluginResponder responder = LateResponder();
  const auto prefer = [&](const std::string& name) -> Result<Ids> {
    if (name.starts_with("all->")) return responder.Prefer(set_, all, {}, name[5] - '0');
    if (name.starts_with("must last->")) {
      return responder.Prefer(set_, all, {Uuid(7)}, name[11] - '0');
    }
    if (name == "first 3->4 (too few)") {
      return responder.Prefer(set_, {Uuid(0), Uuid(1), Uuid(2)}, {}, 4);
    }
    if (name == "must not available")
      return responder.Prefer(set_, {Uuid(0), Uuid(1)}, {Uuid(7)}, 2);
    if (name == "size 0") return responder.Prefer(set_, all, {}, 0);
    if (name == "unknown id") return responder.Prefer(set_, {Uuid(0), "nope"}, {}, 1);
    return Status(Code::kCancelled, "ties that are decided by order");
  };
  for (const auto& [name, theirs] : oracle->Find("GetPreferredAllocation")->members()) {
    const Result<Ids> ours = prefer(name);
    if (theirs.is_object()) {
      EXPECT_EQ(ours.status().message(), *theirs.Find("error")->StringAt("details"));
    } else if (ours.status().code() != Code::kCancelled) {
      // Compares how many IDs are returned, and not which of equal IDs.
      ASSERT_TRUE(ours.ok()) << name << ours.status().ToString();
      EXPECT_EQ(ours->size(), theirs.items()[0].items().size()) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::agent
