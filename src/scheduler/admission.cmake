# SPDX-License-Identifier: Apache-2.0
# The admission webhook: a library of its own inside the room, which knows nothing of the extender.
set(admission ${CMAKE_CURRENT_LIST_DIR})

add_library(tessera_admission STATIC
  ${admission}/admission.cc ${admission}/admission_capacity.cc ${admission}/admission_review.cc
  ${admission}/admission_server.cc)
target_include_directories(tessera_admission PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(tessera_admission PUBLIC tessera::kube tessera::ledger tessera::net
                                               tessera::certificates)
add_library(tessera::admission ALIAS tessera_admission)

add_library(tessera_admission_testing STATIC ${admission}/testing/manifests.cc
                                             ${admission}/testing/reviews.cc)
target_link_libraries(tessera_admission_testing PUBLIC tessera::admission tessera::kube_testing)
# One file alone: the path of a tree keeps an object out of the compiler cache of another.
set_source_files_properties(${admission}/testing/manifests.cc PROPERTIES
  COMPILE_DEFINITIONS TESSERA_BUILT_FROM="${CMAKE_SOURCE_DIR}")
add_library(tessera::admission_testing ALIAS tessera_admission_testing)

tessera_test(NAME admission_test
  SOURCES ${admission}/admission_test.cc ${admission}/admission_capacity_test.cc
          ${admission}/admission_manifests_test.cc ${admission}/admission_review_test.cc
  DEPS tessera::admission_testing tessera::ledger_testing)
tessera_test(NAME admission_loopback_test
  SOURCES ${admission}/admission_apiserver_test.cc ${admission}/admission_server_test.cc
  DEPS tessera::admission_testing tessera::ledger_testing tessera::net_testing
  LABELS component THREADS)
