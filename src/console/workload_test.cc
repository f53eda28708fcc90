// SPDX-License-Identifier: Apache-2.0
#include "src/console/workload.h"

#include <gtest/gtest.h>

#include "src/formats/yaml.h"

namespace tessera::console {
namespace {

WorkloadForm Part() {
  return {.name = "part",
          .ns = "team",
          .image = "cuda:1",
          .whole = false,
          .hundredths = 30,
          .memory_blocks = 20};
}

TEST(WorkloadTest, APartOfAGpuIsAPodInVcudaUnits) {
  EXPECT_EQ(WriteYaml(ManifestOf(Part())),
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: part\n  namespace: team\n  labels:\n"
            "    app: part\nspec:\n  containers:\n  - name: main\n    image: \"cuda:1\"\n"
            "    resources:\n      limits:\n        tencent.com/vcuda-core: 30\n"
            "        tencent.com/vcuda-memory: 20\n");
}

TEST(WorkloadTest, ManifestsGiveTheirFormBack) {
  std::vector<WorkloadForm> forms = {Part(), Part(), Part()};
  forms[1].replicas = 3;
  forms[1].model = "A100";
  forms[2] = {.name = "whole", .ns = "default", .image = "x", .whole = true, .gpus = 8};
  for (WorkloadForm& form : forms) {
    const auto manifest = ParseManifest(WriteYaml(ManifestOf(form)));
    ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
    EXPECT_EQ(manifest->deployment, form.replicas > 1);
    EXPECT_EQ(manifest->ns, form.ns);
    auto back = FormOf(manifest->object);
    ASSERT_TRUE(back.has_value());
    // The other kind's fields have no meaning.
    back->whole ? (back->hundredths = form.hundredths, back->memory_blocks = form.memory_blocks)
                : back->gpus = form.gpus;
    EXPECT_EQ(*back, form);
  }
}

TEST(WorkloadTest, AManifestWithMoreThanTheFormSaysHasNoForm) {
  Json manifest = ManifestOf(Part());
  manifest.Find("spec")->Set("hostNetwork", Json::Bool(true));
  EXPECT_FALSE(FormOf(manifest).has_value());
  EXPECT_FALSE(FormOf(ParseJson(R"({"kind":"Pod"})").value()).has_value());
}

TEST(WorkloadTest, MessagesStandAtTheirFields) {
  FieldErrors errors;
  ParseForm(ParseJson(R"({"name":"Big","namespace":"a","image":"","whole":false,"hundredths":100,
                          "memoryBlocks":0,"replicas":1})")
                .value(),
            &errors);
  std::vector<std::string> fields;
  for (const auto& [field, message] : errors) fields.push_back(field);
  EXPECT_EQ(fields, (std::vector<std::string>{"hundredths", "image", "memoryBlocks", "name"}));
}

TEST(WorkloadTest, OnlyPodsAndDeploymentsAreAccepted) {
  for (const char* text :
       {"", "3", "kind: Secret\napiVersion: v1\nmetadata: {name: x}",
        "kind: Pod\napiVersion: v2\nmetadata: {name: x}", "kind: Pod\napiVersion: v1\n", "kind: [",
        "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}"}) {
    EXPECT_EQ(ParseManifest(text).status().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tessera::console
