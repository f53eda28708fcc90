// SPDX-License-Identifier: Apache-2.0
// The pods that `tessera test` runs, and how their results are judged. Pure. Included only in
// src/cli.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::cli {

// How a test pod ended.
struct CaseResult {
  Json pod;         // as the API server has it at its end
  Json node;        // the Node on which the pod ran
  std::string log;  // the end of its log
};

struct TestCase {
  const char* name;
  const char* purpose;        // what the case proves
  std::string_view resource;  // the case is skipped if no node offers it; "": none is needed
  int amount = 0;
  const char* args[3] = {};  // for the test image; unused entries are null
  bool must_fail = false;    // the program must end with an error
  // Why the case failed; "" if it passed.
  std::string (*judge)(const CaseResult& result);
};

std::span<const TestCase> TestCases();
// "whole-gpu, share, …"
std::string TestCaseNames();

// The label of the pods and the namespace of `tessera test`.
inline constexpr std::string_view kTestName = "tessera-test";

// Why the case cannot run on these nodes; "" if it can.
std::string ReasonToSkip(const TestCase& test, const std::vector<Json>& nodes);
// The pod of a case. The kubelet ends it after `deadline`, also if the command has been killed.
Json PodOfCase(const TestCase& test, const std::string& ns, const std::string& image,
               const std::string& pull_policy, std::chrono::seconds deadline);
// Why the case failed, from its pod's end; "" if it passed.
std::string Judge(const TestCase& test, const CaseResult& result);
// Why a pod has not ended: the state of its container, or of its scheduling.
std::string ReasonOfWait(const Json& pod);

}  // namespace tessera::cli
