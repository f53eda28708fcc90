// SPDX-License-Identifier: Apache-2.0
// Checks the rights in deploy/operator against what the operator applies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/components/objects.h"
#include "src/components/settings.h"
#include "src/formats/yaml.h"

namespace tessera::operators {
namespace {

std::vector<Json> Documents() {
  std::vector<Json> documents;
  for (const char* file : {"operator.yaml", "drivers.yaml"}) {
    const std::string text =
        ReadFile(fmt::format("{}/deploy/operator/{}", TESSERA_SOURCE_DIR, file)).value();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find("\n---\n", begin), text.size());
      documents.push_back(ParseYaml(text.substr(begin, end - begin)).value());
      begin = end + 5;
    }
  }
  return documents;
}

bool Has(const Json* list, std::string_view value) {
  return list != nullptr &&
         std::any_of(list->items().begin(), list->items().end(),
                     [&](const Json& item) { return item.string_value() == value; });
}

// Whether a ClusterRole, or a Role in namespace `ns`, allows `verb` on the object `name`.
bool Allows(const std::vector<Json>& documents, const std::string& ns, const std::string& group,
            const std::string& resource, const std::string& verb, const std::string& name) {
  for (const Json& role : documents) {
    const std::string kind = role.StringAt("kind").value();
    const std::string role_ns = role.Find("metadata")->StringAt("namespace").value_or("");
    if (kind != "ClusterRole" && (kind != "Role" || role_ns != ns)) continue;
    for (const Json& rule : role.Find("rules")->items()) {
      const Json* names = rule.Find("resourceNames");
      if (Has(rule.Find("apiGroups"), group) && Has(rule.Find("resources"), resource) &&
          Has(rule.Find("verbs"), verb) && (names == nullptr || Has(names, name))) {
        return true;
      }
    }
  }
  return false;
}

std::string PluralOf(const std::string& kind) {
  const std::string lower = ToLower(kind);
  if (lower.ends_with("policy")) return lower.substr(0, lower.size() - 1) + "ies";
  return lower + (lower.ends_with("class") ? "es" : "s");
}

TEST(ManifestTest, TheOperatorHasTheRightsThatItsObjectsNeed) {
  const auto settings =
      components::ParseSettings(ParseYaml("console: {enabled: true, behindHttps: true}\n"
                                          "driver: {enabled: true, version: '550.1'}\n"
                                          "pools: [{name: p, nodeSelector: {a: b}}]\n")
                                    .value());
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  std::vector<Json> objects = components::RenderObjects(*settings);
  for (Json& object : components::ObjectsOfEveryKind()) objects.push_back(std::move(object));
  const std::vector<Json> documents = Documents();
  for (const Json& object : objects) {
    const std::string version = object.StringAt("apiVersion").value();
    const size_t slash = version.find('/');
    const std::string group = slash == std::string::npos ? "" : version.substr(0, slash);
    const std::string resource = PluralOf(object.StringAt("kind").value());
    const Json& metadata = *object.Find("metadata");
    const std::string ns = metadata.StringAt("namespace").value_or("");
    const std::string name = metadata.StringAt("name").value();
    std::vector<std::string> verbs = {"create", "patch", "delete", "list", "watch"};
    if (resource == "roles" || resource == "clusterroles") verbs.emplace_back("escalate");
    for (const std::string& verb : verbs) {
      EXPECT_TRUE(Allows(documents, ns, group, resource, verb, name))
          << verb << " " << resource << "." << group << " " << ns << "/" << name;
    }
  }
}

TEST(ManifestTest, TheOperatorMayDeleteWhatASchedulerLeavesBehind) {
  const std::vector<Json> documents = Documents();
  for (const auto& [group, resource] : {std::pair("coordination.k8s.io", "leases"),
                                        std::pair("discovery.k8s.io", "endpointslices")}) {
    EXPECT_TRUE(
        Allows(documents, "tessera-system", group, resource, "delete", "tessera-scheduler"));
    EXPECT_FALSE(Allows(documents, "tessera-system", group, resource, "delete", "other"));
  }
}

TEST(ManifestTest, NoRightHasAWildcard) {
  for (const Json& document : Documents()) {
    const Json* rules = document.Find("rules");
    for (size_t i = 0; rules != nullptr && i < rules->items().size(); ++i) {
      EXPECT_EQ(rules->items()[i].Serialize().find('*'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tessera::operators
