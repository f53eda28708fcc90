# SPDX-License-Identifier: Apache-2.0
# Language, warnings, sanitizers, linker and output folders, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(TESSERA_SANITIZE "" CACHE STRING "Sanitizers, comma separated: address,undefined or thread")

add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers
                    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_SYSROOT)
  # Programs name a header of a library by the same path wherever the libraries are unpacked.
  add_compile_options(-ffile-prefix-map=${CMAKE_SYSROOT}=)
endif()
add_compile_definitions($<$<CONFIG:Release>:NDEBUG> $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  if(TESSERA_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # The warning is meant for headers with members of anonymous types; a unity build includes sources.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
# Sections of their own let the linker drop what a program does not reach.
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections)

find_program(TESSERA_MOLD mold)
if(TESSERA_MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()
find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${TESSERA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
