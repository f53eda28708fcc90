// SPDX-License-Identifier: Apache-2.0
// The objects of an installation in the API server, rendered from its settings. Equal settings give
// equal objects. The objects come from the chart's templates. Lines with a Helm directive are
// skipped, and this code sets their values.
//
// Each object has apiVersion, kind, metadata.name, metadata.namespace if it has one, and the label
// app.kubernetes.io/part-of=tessera. No object has a status. The objects are for server-side apply.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/components/settings.h"
#include "src/formats/json.h"

namespace tessera::components {

// Objects whose state is reported together. An error of one component does not affect other
// components.
struct Component {
  std::string name;  // policies, driver, agent, webhook, scheduler, monitoring, access, console
  std::vector<Json> objects;  // in the order in which they must be applied
};

// If drivers are installed, this component has the accounts and rights of their pods. The operator
// adds the DaemonSets (driver_daemonset.h), because they depend on the nodes.
inline constexpr std::string_view kDriverComponent = "driver";

// In the order in which they should be applied. A component without objects is left out.
std::vector<Component> RenderComponents(const Settings& settings);

// The objects of all components, in that order.
std::vector<Json> RenderObjects(const Settings& settings);

// Namespace tessera-system, which all components need; its label admits the agent's privileged
// pods. It is not part of RenderObjects, because a component must not own the namespace that it
// runs in.
Json SystemNamespace();

// The namespace, the rights of the operator, and the operator, which renders the other objects from
// its resource.
std::vector<Json> RenderOperator(const Settings& settings);

// The command that applies RenderOperator again, for an operator that is missing or lacks a right.
inline constexpr std::string_view kRestoreOperator = "tessera upgrade";

// The DaemonSets of tessera-agent: one for each pool, and one for nodes outside of all pools. They
// are part of RenderComponents.
std::vector<Json> RenderAgents(const Settings& settings);

// DaemonSets that remove tessera-runtime from the engine's configuration, on the nodes whose agents
// configured it. An uninstall applies these DaemonSets after the agents have ended, and deletes
// them when they are ready.
std::vector<Json> RenderCleanup(const Settings& settings);

// The CustomResourceDefinition of `tessera.dev/v1alpha1 Tessera`: cluster-scoped, with the schema
// of the settings, and a status of any content.
Json TesseraDefinition();
// Objects of each type and namespace that settings may render, to find objects that earlier
// settings have left.
std::vector<Json> ObjectsOfEveryKind();

}  // namespace tessera::components
