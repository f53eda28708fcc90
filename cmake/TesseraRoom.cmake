# SPDX-License-Identifier: Apache-2.0
# A room is a folder under src/ and a static library tessera::<name>; see CONTRIBUTING.md.

# tessera_room(NAME base SOURCES a.cc b.cc [DEPS tessera::x ...] [PRIVATE_DEPS ...])
function(tessera_room)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(tessera_${ARG_NAME} STATIC ${ARG_SOURCES})
  add_library(tessera::${ARG_NAME} ALIAS tessera_${ARG_NAME})
  target_include_directories(tessera_${ARG_NAME} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(tessera_${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# Where the preset has unity builds: compiles these sources of the target with each other and with no
# others of it.
function(tessera_unity_group target name)
  set(batch 1)
  if(CMAKE_UNITY_BUILD_BATCH_SIZE)
    set(batch ${CMAKE_UNITY_BUILD_BATCH_SIZE})
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  set(position 0)
  foreach(source IN LISTS ARGN)
    math(EXPR number "${position} / ${batch}")
    math(EXPR position "${position} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${number})
  endforeach()
endfunction()

# Programs to build for `ctest -L unit` and `ctest -L threads` alone.
add_custom_target(unit_tests)
add_custom_target(threads_tests)

# tessera_test(NAME base_test SOURCES a_test.cc ... [APART b_test.cc ...] [DEPS ...] [TIMEOUT seconds]
#              [LABELS ...] [THREADS])
# One gtest program; CTest sees each of its tests under its own name. LABELS is unit or component;
# THREADS says that ThreadSanitizer has something to find in it. APART are sources that use a name of
# the other sources for something else; a unity build compiles them in units of their own.
#
# With sanitizers CTest sees the program in four parts, because starting it takes longer than most of
# its tests. Each part writes its results to results/ of the build folder, as gtest's XML.
function(tessera_test)
  cmake_parse_arguments(ARG "THREADS" "NAME;TIMEOUT" "SOURCES;APART;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(ARG_THREADS)
    list(APPEND ARG_LABELS threads)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES} ${ARG_APART})
  if(ARG_APART)
    tessera_unity_group(${ARG_NAME} together ${ARG_SOURCES})
    tessera_unity_group(${ARG_NAME} apart ${ARG_APART})
  endif()
  target_include_directories(${ARG_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(label IN LISTS ARG_LABELS)
    if(TARGET ${label}_tests)
      add_dependencies(${label}_tests ${ARG_NAME})
    endif()
  endforeach()
  # One label that `ctest -L`, which takes patterns, finds by each of its parts: discovery cannot
  # pass on a list.
  list(JOIN ARG_LABELS "-" ARG_LABELS)
  if(TESSERA_SANITIZE)
    set(parts 4)
    foreach(part RANGE 1 ${parts})
      math(EXPR index "${part} - 1")
      set(name "${ARG_NAME}.${part}of${parts}")
      add_test(NAME ${name} COMMAND ${ARG_NAME})
      set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${ARG_LABELS}" ENVIRONMENT
        "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index};GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/results/${name}.xml;${ARG_ENVIRONMENT}")
    endforeach()
    return()
  endif()
  include(GoogleTest)
  # Names of cases come from the test: of most values GoogleTest would print the bytes.
  gtest_discover_tests(${ARG_NAME} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
                                  ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# tessera_program(NAME tessera-agent SOURCES main.cc DEPS tessera::agent [STATIC])
# A program in build/<preset>/bin. STATIC links a position independent program without shared
# libraries, for what runs on hosts that we know nothing about.
function(tessera_program)
  cmake_parse_arguments(ARG "STATIC" "NAME" "SOURCES;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
  if(ARG_STATIC AND NOT TESSERA_SANITIZE)
    target_compile_options(${ARG_NAME} PRIVATE -fPIE)
    target_link_options(${ARG_NAME} PRIVATE -static-pie)
  elseif(NOT TESSERA_SANITIZE)
    target_link_options(${ARG_NAME} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()
