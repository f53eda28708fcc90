// SPDX-License-Identifier: Apache-2.0
// What is fuzzed: entry points that take any bytes. Each ends the program where a property does not
// hold; errors are no failures. libFuzzer runs them by hand (README.md), and mutation_test.cc runs
// them with changed seeds in every build.
#pragma once

#include <array>
#include <string_view>

namespace tessera::fuzz {

struct Target {
  std::string_view name;  // also its folder below corpus/
  void (*run)(std::string_view input);
};

// Values: a quantity is at most as large as the API server's.
void Quantity(std::string_view input);
// A pod in the lines of pod_text.h: what is accepted keeps every bound of request.h.
void Dialects(std::string_view input);
// Codecs: what is read is written, and what is written is read back as the same.
void NodeAnnotation(std::string_view input);
void Assignment(std::string_view input);
void PodAnnotations(std::string_view input);
void GpushareAllocation(std::string_view input);
// What is taken of a file is a few GPUs for each container, and the same where it is read again.
void KubeletCheckpoint(std::string_view input);
void GpuManagerCheckpoint(std::string_view input);
void Names(std::string_view input);
#ifdef TESSERA_FUZZ_TRACES
// Files of sched-replay: what is accepted is within its limits, what is not is named by its line.
void TraceNodes(std::string_view input);
void TracePods(std::string_view input);
#endif
#ifdef TESSERA_FUZZ_ADMISSION
// A request to the webhook, or a pod in the lines of pod_text.h: any gets an answer that the API
// server can read, and a patch that applies and leaves nothing for a second one.
void AdmissionReview(std::string_view input);
#endif
#ifdef TESSERA_FUZZ_KUBE
// An object as the API server sends it, behind a letter for its type: what is read, written and
// read again is the same.
void KubeObject(std::string_view input);
// What is accepted says where to go and who is there by one way.
void Kubeconfig(std::string_view input);
// The bytes of a watch, behind a letter for their encoding: the same events wherever they are cut.
void WatchEvents(std::string_view input);
#endif

inline constexpr std::array kTargets = {
    Target{"quantity", Quantity},
    Target{"dialects", Dialects},
    Target{"node_annotation", NodeAnnotation},
    Target{"assignment", Assignment},
    Target{"pod_annotations", PodAnnotations},
    Target{"gpushare_allocation", GpushareAllocation},
    Target{"kubelet_checkpoint", KubeletCheckpoint},
    Target{"gpu_manager_checkpoint", GpuManagerCheckpoint},
    Target{"names", Names},
#ifdef TESSERA_FUZZ_TRACES
    Target{"trace_nodes", TraceNodes},
    Target{"trace_pods", TracePods},
#endif
#ifdef TESSERA_FUZZ_ADMISSION
    Target{"admission_review", AdmissionReview},
#endif
#ifdef TESSERA_FUZZ_KUBE
    Target{"kube_object", KubeObject},
    Target{"kubeconfig", Kubeconfig},
    Target{"watch_events", WatchEvents},
#endif
};

}  // namespace tessera::fuzz
