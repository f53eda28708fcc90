# SPDX-License-Identifier: Apache-2.0
# Libraries of Debian 12 (scripts/packages.txt). A room links only those that its README names.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(GTest REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Protobuf REQUIRED)
find_package(CLI11 REQUIRED)
# Archives where Debian has them: tessera-runtime is static, and images are from scratch.
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 REQUIRED COMPONENTS json)

# fmt as an archive (src/base/fmt_library.cc says why).
add_library(tessera_fmt STATIC ${CMAKE_SOURCE_DIR}/src/base/fmt_library.cc)
add_library(tessera::fmt ALIAS tessera_fmt)

find_package(PkgConfig REQUIRED)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
find_library(TESSERA_YAML_ARCHIVE NAMES libyaml.a REQUIRED)
set_target_properties(PkgConfig::YAML PROPERTIES INTERFACE_LINK_LIBRARIES ${TESSERA_YAML_ARCHIVE})
find_library(TESSERA_NGHTTP2_ARCHIVE NAMES libnghttp2.a REQUIRED)
add_library(tessera_nghttp2 INTERFACE)
target_link_libraries(tessera_nghttp2 INTERFACE ${TESSERA_NGHTTP2_ARCHIVE})
add_library(tessera::nghttp2 ALIAS tessera_nghttp2)
pkg_check_modules(TOMLPLUSPLUS IMPORTED_TARGET tomlplusplus)

# gRPC without TLS, as archives: all its peers are unix sockets, and the linker keeps only what is
# reached, which halves the memory of a program.
file(GLOB TESSERA_ABSL_ARCHIVES ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/libabsl_*.a)
add_library(tessera_grpc INTERFACE)
target_link_libraries(tessera_grpc INTERFACE
  -Wl,--start-group libgrpc++_unsecure.a libgrpc_unsecure.a libgpr.a libaddress_sorting.a libupb.a
  libre2.a libcares.a libprotobuf.a libz.a ${TESSERA_ABSL_ARCHIVES} -Wl,--end-group
  Threads::Threads ${CMAKE_DL_LIBS})
add_library(tessera::grpc ALIAS tessera_grpc)
