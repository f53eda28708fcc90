# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=profiles.cc -DFILES="a.yaml;b.yaml" -P embed_profiles.cmake
set(table "")
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME_WE)
  file(READ "${file}" text)
  string(APPEND table "    {\"${name}\", R\"yaml(${text})yaml\"},\n")
endforeach()
file(WRITE "${OUT}" "// Made by embed_profiles.cmake.\n#include \"src/sim/profiles.h\"\n\n"
     "namespace tessera::sim {\nnamespace {\nconstexpr BuiltInProfile kProfiles[] = {\n${table}};\n}\n"
     "const std::span<const BuiltInProfile> kBuiltInProfiles(kProfiles);\n}  // namespace tessera::sim\n")
