// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/certificate_keeper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "src/formats/base64.h"

namespace tessera::certificates {
namespace {

constexpr const char* kBundle = "authority of Tessera";

Json Configuration(const std::string& webhooks) {
  return ParseJson(fmt::format(R"({{"metadata":{{"name":"x"}},"webhooks":{}}})", webhooks)).value();
}

std::string PatchOf(const std::string& webhooks) {
  const auto patch = BundlePatch(Configuration(webhooks), kBundle);
  return patch ? patch->Serialize() : "none";
}

std::string WebhookWithBundle(const std::string& name, const std::string& bundle) {
  return fmt::format(R"({{"name":"{}","clientConfig":{{"caBundle":"{}"}}}})", name,
                     Base64Encode(bundle));
}

// The operations that write the bundle into the webhook if it still has that name.
std::string OperationsFor(int index, const std::string& name) {
  return fmt::format(R"({{"op":"test","path":"/webhooks/{0}/name","value":"{1}"}},)"
                     R"({{"op":"add","path":"/webhooks/{0}/clientConfig/caBundle","value":"{2}"}})",
                     index, name, Base64Encode(kBundle));
}

TEST(BundlePatchTest, ThePatchTestsTheNameOfTheWebhookBeforeItSetsTheBundle) {
  EXPECT_EQ(
      PatchOf(fmt::format(R"([{{"name":"a.tessera.dev","clientConfig":{{"service":{{}}}}}},{}])",
                          WebhookWithBundle("b.tessera.dev", "another CA"))),
      fmt::format("[{},{}]", OperationsFor(0, "a.tessera.dev"), OperationsFor(1, "b.tessera.dev")));
}

TEST(BundlePatchTest, WebhookWithTheBundleIsNotPatched) {
  EXPECT_EQ(PatchOf(fmt::format("[{},{}]", WebhookWithBundle("a", kBundle),
                                WebhookWithBundle("b", "another CA"))),
            fmt::format("[{}]", OperationsFor(1, "b")));
  EXPECT_EQ(PatchOf(fmt::format("[{}]", WebhookWithBundle("a", kBundle))), "none");
}

TEST(BundlePatchTest, WebhookWithoutNameOrClientConfigIsNotPatched) {
  EXPECT_EQ(PatchOf(R"([{"clientConfig":{}},{"name":"b"},{"name":"c","clientConfig":"text"},)"
                    R"({"name":"d","clientConfig":{}}])"),
            fmt::format("[{}]", OperationsFor(3, "d")));
}

TEST(BundlePatchTest, ConfigurationWithoutWebhooksNeedsNoPatch) {
  EXPECT_EQ(PatchOf("[]"), "none");
  EXPECT_EQ(PatchOf("null"), "none");
  EXPECT_EQ(PatchOf(R"({"name":"a","clientConfig":{}})"), "none");
  EXPECT_FALSE(BundlePatch(ParseJson(R"({"metadata":{}})").value(), kBundle).has_value());
}

}  // namespace
}  // namespace tessera::certificates
