// SPDX-License-Identifier: Apache-2.0
// The objects of an installation in the API server, rendered from its settings. Equal settings give
// equal objects. The templates of the chart have the objects as YAML; the code sets what their
// directives set.
//
// Each object has apiVersion, kind, metadata.name, metadata.namespace if it has one, and the label
// app.kubernetes.io/part-of=tessera. None has a status. They are meant for server-side apply.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/components/settings.h"
#include "src/formats/json.h"

namespace tessera::components {

// Objects that work, fail and are reported together. An error of one component does not keep
// others from being applied.
struct Component {
  std::string name;           // policies, driver, agent, webhook, scheduler, monitoring, access
  std::vector<Json> objects;  // in the order in which they must be applied
};

// Where drivers are installed, this component has what their pods need. The operator adds the
// DaemonSets (driver_daemonset.h), because they depend on the nodes.
inline constexpr std::string_view kDriverComponent = "driver";

// In the order in which they should be applied. A component without objects is left out.
std::vector<Component> RenderComponents(const Settings& settings);

// The objects of all components, in that order.
std::vector<Json> RenderObjects(const Settings& settings);

// Namespace tessera-system, which all of them need; its label admits the agent's privileged pods.
// Not in RenderObjects: what runs in the namespace does not own it.
Json SystemNamespace();

// The operator with its rights, the namespace first. It renders the other objects from its
// resource.
std::vector<Json> RenderOperator(const Settings& settings);

// DaemonSets that take tessera-runtime out of the engine's configuration on the nodes of the agents
// that have put it there. For an uninstall: applied after the agents are gone, and deleted when
// they are ready.
std::vector<Json> RenderCleanup(const Settings& settings);

// The CustomResourceDefinition of `tessera.dev/v1alpha1 Tessera`: cluster-scoped, with the schema
// of the settings, and a status of any content.
Json TesseraDefinition();
// A spec under which all kinds of objects are rendered, to find what earlier settings have left.
Json SpecOfEveryKind();

}  // namespace tessera::components
