// SPDX-License-Identifier: Apache-2.0
#include "src/console/workload.h"

#include <gtest/gtest.h>

#include "api/names.h"

namespace tessera::console {
namespace {

WorkloadForm ShareForm() {
  return {.name = "part",
          .ns = "team",
          .image = "cuda:1",
          .whole = false,
          .hundredths = 30,
          .memory_blocks = 20};
}

Manifest Parsed(const std::string& text) {
  Result<Manifest> manifest = ParseManifest(text);
  EXPECT_TRUE(manifest.ok()) << manifest.status().ToString() << text;
  return manifest.ok() ? *std::move(manifest) : Manifest{};
}

// The text after a change of the fields in `json`.
std::string EditedText(const std::string& text, const std::string& json) {
  FieldErrors errors;
  const Manifest manifest = Parsed(text);
  const FormReading before = ReadForm(manifest);
  const FormEdit edit = ParseForm(ParseJson(json).value(), &before, &errors);
  EXPECT_TRUE(errors.empty()) << errors.begin()->first << errors.begin()->second;
  return WithEdit(manifest, before, edit).value();
}

// A manifest as a user writes it, with many fields that the form lacks.
constexpr const char* kWritten = R"(apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team, labels: {app: front}}
spec:
  replicas: 2  # for now
  selector:
    matchLabels: {app: front}
  template:
    metadata:
      labels: {app: front}
    spec:
      nodeSelector:
        disk: ssd
      containers:
      - name: sidecar
        image: proxy:1
      - name: main
        image: cuda:12
        args: [--serve]
        env:
        - {name: A, value: b}
        resources:
          requests: {cpu: 2, nvidia.com/gpu: 1}
          limits:
            nvidia.com/gpu: 1  # whole
)";
std::string WrittenWith(std::string_view part, std::string_view replacement) {
  std::string text = kWritten;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), replacement);
}

TEST(WorkloadTest, AShareIsRequestedInVcudaUnits) {
  EXPECT_EQ(ManifestOf(ShareForm()),
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: part\n  namespace: team\n  labels:\n"
            "    app: part\nspec:\n  containers:\n  - name: main\n    image: \"cuda:1\"\n"
            "    resources:\n      limits:\n        tencent.com/vcuda-core: 30\n"
            "        tencent.com/vcuda-memory: 20\n");
}

TEST(WorkloadTest, TheFormIsReadBackFromItsManifest) {
  std::vector<WorkloadForm> forms = {ShareForm(), ShareForm(), ShareForm()};
  forms[1].replicas = 3;
  forms[1].model = "A100";
  forms[2] = {.name = "whole", .ns = "default", .image = "x", .whole = true, .gpus = 8};
  for (WorkloadForm& form : forms) {
    const Manifest manifest = Parsed(ManifestOf(form));
    EXPECT_EQ(manifest.deployment, form.replicas > 1);
    EXPECT_EQ(manifest.ns, form.ns);
    FormReading back = ReadForm(manifest);
    EXPECT_TRUE(back.unread.empty());
    // A manifest has either a number of whole GPUs or a share. Copy the fields that it lacks.
    back.form.whole
        ? (back.form.hundredths = form.hundredths, back.form.memory_blocks = form.memory_blocks)
        : back.form.gpus = form.gpus;
    EXPECT_EQ(back.form, form);
  }
}

TEST(WorkloadTest, TheFormReadsItsFieldsFromAHandWrittenManifest) {
  const FormReading reading = ReadForm(Parsed(kWritten));
  EXPECT_TRUE(reading.unread.empty());
  EXPECT_EQ(reading.form, (WorkloadForm{.name = "web",
                                        .ns = "team",
                                        .image = "cuda:12",
                                        .whole = true,
                                        .gpus = 1,
                                        .replicas = 2}));
  EXPECT_EQ(reading.container_name, "main");
  EXPECT_EQ(reading.containers, 2U);
}

TEST(WorkloadTest, FieldsThatTheFormCannotShowAreNamed) {
  const auto unread = [](const std::string& text) { return ReadForm(Parsed(text)).unread; };
  const auto unread_amount = [&](std::string_view limits) {
    const auto all = unread(WrittenWith("nvidia.com/gpu: 1  # whole", limits));
    const auto found = all.find("amount");
    return found == all.end() ? UnreadField{"read", ""} : found->second;
  };
  EXPECT_EQ(unread_amount("aliyun.com/gpu-mem: 8"),
            (UnreadField{"other", "aliyun.com/gpu-mem: 8"}));
  EXPECT_EQ(unread_amount("nvidia.com/mig-1g.10gb: \"1\""),
            (UnreadField{"other", "nvidia.com/mig-1g.10gb: 1"}));
  EXPECT_EQ(unread_amount("{nvidia.com/gpu: 1, tencent.com/vcuda-core: 30}").why, "other");
  EXPECT_EQ(unread_amount("{tencent.com/vcuda-core: 30, nvidia.com/gpu: 1}").why, "other");
  EXPECT_EQ(unread_amount("{tencent.com/vcuda-core: 200, tencent.com/vcuda-memory: 4}"),
            (UnreadField{"value", "tencent.com/vcuda-core: 200"}));
  EXPECT_EQ(unread_amount("tencent.com/vcuda-core: 30"),
            (UnreadField{"value", "tencent.com/vcuda-core: 30"}));
  EXPECT_EQ(unread_amount("nvidia.com/gpu: many"), (UnreadField{"value", "nvidia.com/gpu: many"}));
  EXPECT_EQ(unread_amount("cpu: 1"), (UnreadField{"no-gpus", ""}));
  EXPECT_EQ(unread_amount("{tencent.com/vcuda-core: \"30\", tencent.com/vcuda-memory: 4}").why,
            "read");
  EXPECT_EQ(unread(WrittenWith("replicas: 2", "replicas: two")),
            (std::map<std::string, UnreadField>{{"replicas", {"value", "two"}}}));
  const auto none = unread("apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n");
  EXPECT_EQ(none, (std::map<std::string, UnreadField>{{"name", {"missing", ""}},
                                                      {"image", {"missing", ""}},
                                                      {"amount", {"missing", ""}}}));
}

TEST(WorkloadTest, AnEditKeepsFieldsThatTheFormLacks) {
  EXPECT_EQ(EditedText(kWritten, R"({"image":"cuda:13"})"), WrittenWith("cuda:12", "cuda:13"));
  EXPECT_EQ(EditedText(kWritten, R"({"replicas":5})"), WrittenWith("replicas: 2", "replicas: 5"));
  // The label app keeps its value, which was not the old name.
  EXPECT_EQ(EditedText(kWritten, R"({"name":"other"})"), WrittenWith("name: web", "name: other"));
  EXPECT_EQ(EditedText(kWritten, R"({"namespace":"own"})"),
            WrittenWith("namespace: team", "namespace: own"));
  EXPECT_EQ(EditedText(kWritten, R"({"model":"A100"})"),
            WrittenWith("      labels: {app: front}\n",
                        "      labels: {app: front}\n      annotations:\n        " +
                            std::string(names::kAnnotationGpuModels) + ": A100\n"));
  EXPECT_EQ(EditedText(EditedText(kWritten, R"({"model":"A100"})"), R"({"model":""})"), kWritten);
}

TEST(WorkloadTest, ANewGpuAmountReplacesAllGpuRequests) {
  std::string wanted = WrittenWith("{cpu: 2, nvidia.com/gpu: 1}", "{cpu: 2}");
  wanted.replace(wanted.find("nvidia.com/gpu: 1  # whole"), 26,
                 "tencent.com/vcuda-core: 50\n            tencent.com/vcuda-memory: 8");
  EXPECT_EQ(EditedText(kWritten, R"({"whole":false,"hundredths":50,"memoryBlocks":8})"), wanted);
  const std::string other = WrittenWith("nvidia.com/gpu: 1  # whole", "aliyun.com/gpu-mem: 8");
  EXPECT_EQ(ReadForm(Parsed(EditedText(other, R"({"whole":true,"gpus":3})"))).form.gpus, 3);
  // If no container requests a GPU, the first container gets it.
  const std::string none =
      "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n"
      "  containers:\n  - name: a  # one\n    image: b\n";
  EXPECT_EQ(EditedText(none, R"({"whole":true,"gpus":3})"),
            none + "    resources:\n      limits:\n        nvidia.com/gpu: 3\n");
  const std::string empty = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n";
  EXPECT_EQ(ReadForm(Parsed(EditedText(empty, R"({"image":"b"})"))).form.image, "b");
}

TEST(WorkloadTest, ALabelEqualToTheNameIsRenamedWithIt) {
  WorkloadForm form = ShareForm();
  form.replicas = 3;
  const std::string text = ManifestOf(form) + "# written by hand\n";
  const std::string renamed = EditedText(text, R"({"name":"new"})");
  form.name = "new";
  EXPECT_EQ(renamed, ManifestOf(form) + "# written by hand\n");
}

TEST(WorkloadTest, AnUneditedGeneratedManifestIsGeneratedAgain) {
  WorkloadForm form = ShareForm();
  const std::string pod = ManifestOf(form);
  form.replicas = 3;
  EXPECT_EQ(EditedText(pod, R"({"replicas":3})"), ManifestOf(form));
  EXPECT_EQ(EditedText(ManifestOf(form), R"({"replicas":1})"), pod);
}

TEST(WorkloadTest, AHandWrittenPodWithSeveralReplicasBecomesADeployment) {
  const std::string pod = R"(apiVersion: v1
kind: Pod
metadata: {name: web, labels: {tier: gpu}, annotations: {a/b: c}}
spec:
  hostNetwork: true
  containers:
  - {name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}
)";
  EXPECT_EQ(EditedText(pod, R"({"image":"y"})").find("Deployment"), std::string::npos);
  EXPECT_EQ(EditedText(pod, R"({"replicas":3})"), R"(apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels:
    tier: gpu
spec:
  replicas: 3
  selector:
    matchLabels:
      tier: gpu
  template:
    metadata:
      labels:
        tier: gpu
      annotations:
        a/b: c
    spec:
      hostNetwork: true
      containers:
      - name: main
        image: x
        resources:
          limits:
            nvidia.com/gpu: 1
)");
  // A Deployment with one replica stays a Deployment.
  EXPECT_NE(EditedText(kWritten, R"({"replicas":1})").find("Deployment"), std::string::npos);
}

TEST(WorkloadTest, ErrorsNameTheirFields) {
  const auto fields_of = [](const FieldErrors& errors) {
    std::vector<std::string> fields;
    for (const auto& [field, message] : errors) fields.push_back(field);
    return fields;
  };
  FieldErrors errors;
  ParseForm(ParseJson(R"({"name":"Big","namespace":"a","image":"","whole":false,"hundredths":100,
                          "memoryBlocks":1.5,"replicas":1})")
                .value(),
            nullptr, &errors);
  EXPECT_EQ(fields_of(errors),
            (std::vector<std::string>{"hundredths", "image", "memoryBlocks", "name"}));
  errors.clear();
  ParseForm(ParseJson(R"({"whole":true})").value(), nullptr, &errors);
  EXPECT_EQ(fields_of(errors),
            (std::vector<std::string>{"gpus", "image", "name", "namespace", "replicas"}));
  errors.clear();
  const FormReading reading = ReadForm(Parsed(kWritten));
  const FormEdit edit = ParseForm(ParseJson(R"({"replicas":0})").value(), &reading, &errors);
  EXPECT_EQ(fields_of(errors), std::vector<std::string>{"replicas"});
  EXPECT_EQ(edit.fields, std::set<std::string>{"replicas"});
}

TEST(WorkloadTest, AnUnknownFieldIsFoundInTheText) {
  const Manifest manifest = Parsed(WrittenWith("image: cuda", "imag: cuda"));
  EXPECT_EQ(manifest.WithLine("POST /x: Deployment in version \"v1\" cannot be handled: strict "
                              "decoding error: unknown field "
                              "\"spec.template.spec.containers[1].imag\" (BadRequest, HTTP 400)"),
            "line 18: unknown field \"spec.template.spec.containers[1].imag\" (BadRequest, HTTP "
            "400)");
  for (const char* other :
       {"name: Required value", "unknown field \"spec.x[7].y\"",
        "unknown field \"spec.template.spec.containers[7]\"", "unknown field \""}) {
    EXPECT_EQ(manifest.WithLine(other), other);
  }
}

TEST(WorkloadTest, TheSelectorOfADeploymentFindsItsPods) {
  EXPECT_EQ(SelectorOf(Parsed(kWritten).object), "app=front");
  EXPECT_EQ(SelectorOf(ParseJson(R"({"spec":{"selector":{"matchLabels":{"a":"b","c/d":"e"},
                "matchExpressions":[{"key":"x","operator":"In","values":["1","2"]},
                                    {"key":"y","operator":"NotIn","values":["3"]},
                                    {"key":"z","operator":"Exists"},
                                    {"key":"old","operator":"DoesNotExist"}]}}})")
                           .value()),
            "a=b,c/d=e,x in (1,2),y notin (3),z,!old");
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
