# SPDX-License-Identifier: Apache-2.0
# Writes FILES (paths below ROOT) as C++ string literals into OUT; see deploy_files.h.
set(text "#include \"src/components/deploy_files.h\"\n\nnamespace tessera::components {\n\n")
string(APPEND text "const DeployFile kDeployFiles[] = {\n")
foreach(file IN LISTS FILES)
  # As bytes in hexadecimal: CMake's own strings change semicolons and brackets.
  file(READ ${ROOT}/${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(REGEX REPLACE "\n" "\"\n    \"" bytes "${bytes}")
  string(APPEND text "    {\"${file}\",\n    \"${bytes}\"},\n")
endforeach()
string(APPEND text "    {}};\n\n}  // namespace tessera::components\n")
file(WRITE ${OUT} "${text}")
