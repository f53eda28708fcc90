// SPDX-License-Identifier: Apache-2.0
#include "src/cli/object_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The object as the installer applies it.
constexpr const char* kWanted = R"(
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: b, labels: {app.kubernetes.io/name: a}}
spec:
  replicas: 2
  paused: null
  template:
    spec:
      volumes: []
      containers:
        - {name: main, image: one, args: [--x], ports: [{containerPort: 80}]}
        - {name: side, image: two, args: [--y], ports: [{containerPort: 81}]}
)";

// The metadata, with the fields of the installer and of kubectl-edit. The fields are those that an
// API server of version 1.36 records.
std::vector<FieldEdit> Edits(const std::string& of_installer, const std::string& of_editor = "{}") {
  const std::string metadata = fmt::format(
      R"({{managedFields: [
        {{manager: kubectl-edit, operation: Update, fieldsV1: {{f:spec: {}}}}},
        {{manager: tessera, operation: Apply, fieldsV1: {{
          f:metadata: {{f:labels: {{f:app.kubernetes.io/name: {{}}}}}}, f:spec: {}}}}}]}})",
      of_editor, of_installer);
  return EditsOf(ParseYaml(kWanted).value(), ParseYaml(metadata).value());
}

std::string Container(const std::string& name, int port, const std::string& fields) {
  return fmt::format(
      R"('k:{{"name":"{}"}}': {{.: {{}}, f:name: {{}}, {}f:args: {{}}, f:ports: {{)"
      R"('k:{{"containerPort":{},"protocol":"TCP"}}': {{f:containerPort: {{}}}}}}}})",
      name, fields, port);
}
std::string Spec(const std::string& replicas, const std::string& containers) {
  return fmt::format("{{{}f:template: {{f:spec: {{f:volumes: {{}}, f:containers: {{{}}}}}}}}}",
                     replicas, containers);
}
const std::string kMain = Container("main", 80, "f:image: {}, ");
const std::string kSide = Container("side", 81, "f:image: {}, ");
const std::string kReplicas = "f:replicas: {}, ";

TEST(ObjectEditsTest, AnUnchangedObjectHasNoEdits) {
  EXPECT_THAT(Edits(Spec(kReplicas, kMain + ", " + kSide)), IsEmpty());
  EXPECT_THAT(Edits("{}"), IsEmpty()) << "an atomic value";
}

TEST(ObjectEditsTest, AddedFieldsAreNoEdits) {
  EXPECT_THAT(Edits(Spec(kReplicas, kMain + ", " + kSide), "{f:minReadySeconds: {}}"), IsEmpty());
}

TEST(ObjectEditsTest, AChangedFieldNamesItsPathAndTheClient) {
  EXPECT_THAT(Edits(Spec("", kMain + ", " + kSide), "{f:replicas: {}}"),
              ElementsAre(FieldEdit{"spec.replicas", "kubectl-edit"}));
  EXPECT_THAT(Edits(Spec(kReplicas, kMain + ", " + Container("side", 81, "")),
                    "{f:template: {f:spec: {f:containers: {'k:{\"name\":\"side\"}': {f:image: "
                    "{}}}}}}"),
              ElementsAre(FieldEdit{"spec.template.spec.containers[side].image", "kubectl-edit"}));
}

TEST(ObjectEditsTest, ARemovedFieldOrItemHasNoClient) {
  EXPECT_THAT(Edits(Spec("", kMain)),
              ElementsAre(FieldEdit{"spec.replicas", ""},
                          FieldEdit{"spec.template.spec.containers[side]", ""}));
}

TEST(ObjectEditsTest, WithoutManagedFieldsThereAreNoEdits) {
  EXPECT_THAT(EditsOf(ParseYaml(kWanted).value(), Json::MakeObject()), IsEmpty());
}

TEST(ObjectEditsTest, ItemsOfASetAreIdentifiedByTheirValues) {
  const auto edits = [](const std::string& items) {
    return EditsOf(ParseYaml("{metadata: {finalizers: [a, b]}}").value(),
                   ParseYaml(fmt::format("{{managedFields: [{{manager: tessera, fieldsV1: "
                                         "{{f:metadata: {{f:labels: {{f:app.kubernetes.io/name: "
                                         "{{}}}}, f:finalizers: {{{}}}}}}}}}]}}",
                                         items))
                       .value());
  };
  EXPECT_THAT(edits(R"('v:"a"': {}, 'v:"b"': {})"), IsEmpty());
  EXPECT_THAT(edits(R"('v:"a"': {})"), ElementsAre(FieldEdit{"metadata.finalizers[1]", ""}));
}

}  // namespace
}  // namespace tessera::cli
