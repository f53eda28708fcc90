// SPDX-License-Identifier: Apache-2.0
#include "src/components/driver_settings.h"

#include <tuple>

namespace tessera::components {
namespace {

// Leaves `out` unchanged if the value is missing or empty.
void ReadText(const Json& section, std::string_view key, std::string* out) {
  const Json* value = section.Find(key);
  if (value != nullptr && value->is_string() && !value->string_value().empty()) {
    *out = value->string_value();
  }
}

bool IsSet(const Json& section, std::string_view key) {
  return section.BoolAt(key).value_or(false);
}

Json PartOf(const Json& section, std::string_view key) {
  const Json* part = section.Find(key);
  return part != nullptr && part->is_object() ? *part : Json::MakeObject();
}

// "REPOSITORY/IMAGE:VERSION" of a section. Leaves `out` unchanged if the repository, image or
// version is missing.
void ReadImageName(const Json& section, std::string* out) {
  std::string repository, image, version;
  ReadText(section, "repository", &repository);
  ReadText(section, "image", &image);
  ReadText(section, "version", &version);
  if (repository.empty() || image.empty() || version.empty()) return;
  *out = fmt::format("{}/{}:{}", repository, image, version);
}

void ReadImages(const Json& section, DriverSpec* spec) {
  ReadText(section, "repository", &spec->repository);
  ReadText(section, "image", &spec->image);
  ReadText(section, "version", &spec->version);
  ReadText(section, "imagePullPolicy", &spec->pull_policy);
  if (const Json* secrets = section.Find("imagePullSecrets")) {
    for (const Json& name : secrets->items()) spec->pull_secrets.push_back(name.string_value());
  }
  ReadImageName(PartOf(section, "manager"), &spec->manager_image);
  const Json gds = PartOf(section, "gds"), gdrcopy = PartOf(section, "gdrcopy");
  spec->gds = IsSet(gds, "enabled");
  spec->gdrcopy = IsSet(gdrcopy, "enabled");
  ReadImageName(gds, &spec->gds_image);
  ReadImageName(gdrcopy, &spec->gdrcopy_image);
}

void ReadConfigMaps(const Json& section, DriverSpec* spec) {
  const Json repositories = PartOf(section, "repoConfig");
  ReadText(repositories, "name", &spec->repo_config);
  ReadText(repositories, "configMapName", &spec->repo_config);
  ReadText(PartOf(section, "certConfig"), "name", &spec->cert_config);
  ReadText(PartOf(section, "kernelModuleConfig"), "name", &spec->module_config);
}

}  // namespace

DriverSettings ReadDriver(const Json* section, const std::string& pool) {
  DriverSettings out;
  if (section == nullptr || !section->is_object()) return out;
  out.enabled = IsSet(*section, "enabled");
  out.upgrade_policy = PartOf(*section, "upgradePolicy");
  DriverSpec& spec = out.spec;
  spec.name = pool;
  ReadImages(*section, &spec);
  ReadConfigMaps(*section, &spec);
  const std::string modules = section->StringAt("kernelModuleType").value_or("auto");
  if (modules == "open") spec.kernel_module = KernelModule::kOpen;
  if (modules == "proprietary") spec.kernel_module = KernelModule::kProprietary;
  spec.precompiled = IsSet(*section, "usePrecompiled");
  const Json rdma = PartOf(*section, "rdma");
  spec.rdma = IsSet(rdma, "enabled");
  spec.use_host_mofed = IsSet(rdma, "useHostMofed");
  if (const Json* args = section->Find("args")) {
    for (const Json& arg : args->items()) spec.args.push_back(arg.string_value());
  }
  if (const Json* env = section->Find("env")) {
    for (const Json& variable : env->items()) {
      spec.env[variable.StringAt("name").value()] = variable.StringAt("value").value_or("");
    }
  }
  spec.resources = PartOf(*section, "resources");
  return out;
}

Status CheckDriver(const DriverSpec& spec) {
  if (spec.version.empty()) {
    return Error(Code::kInvalidArgument,
                 "driver.version of \"{}\" is missing: name a driver, such as 550.163.01",
                 spec.name);
  }
  if (spec.gds && spec.kernel_module == KernelModule::kProprietary) {
    return Error(Code::kInvalidArgument,
                 "driver.gds of \"{}\": GPUDirect Storage needs open kernel modules: set "
                 "kernelModuleType to open or auto",
                 spec.name);
  }
  for (const auto& [enabled, image, field] :
       {std::tuple(spec.gds, &spec.gds_image, "gds"),
        std::tuple(spec.gdrcopy, &spec.gdrcopy_image, "gdrcopy")}) {
    if (enabled && image->empty()) {
      return Error(Code::kInvalidArgument,
                   "driver.{}.image of \"{}\" is missing: set repository, image and version", field,
                   spec.name);
    }
  }
  return Status::Ok();
}

}  // namespace tessera::components
