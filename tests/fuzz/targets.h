// SPDX-License-Identifier: Apache-2.0
// The fuzz targets: functions that take any bytes. A target aborts the program if a property does
// not hold; the code under test may reject the bytes. Developers run the targets with libFuzzer
// (README.md), and mutation_test.cc runs them with mutated seeds in every build.
#pragma once

#include <array>
#include <string_view>

namespace tessera::fuzz {

struct Target {
  std::string_view name;  // also its folder below corpus/
  void (*run)(std::string_view input);
};

// Checks that an accepted quantity is at most as large as the API server allows.
void Quantity(std::string_view input);
// The input is a pod in the lines of pod_text.h. An accepted request is within every bound of
// request.h.
void Dialects(std::string_view input);
// Codecs: a value that was read can be written, and reading the written text gives the same value.
void NodeAnnotation(std::string_view input);
void Assignment(std::string_view input);
void PodAnnotations(std::string_view input);
void GpushareAllocation(std::string_view input);
// A checkpoint file gives a few GPUs for each container, and the same GPUs when it is read again.
void KubeletCheckpoint(std::string_view input);
void GpuManagerCheckpoint(std::string_view input);
void Names(std::string_view input);
#ifdef TESSERA_FUZZ_TRACES
// Files of sched-replay: accepted values are within their limits, and an error names its line.
void TraceNodes(std::string_view input);
void TracePods(std::string_view input);
#endif
#ifdef TESSERA_FUZZ_ADMISSION
// The input is a request to the webhook, or a pod in the lines of pod_text.h. The API server can
// read every answer and apply every patch, and the patched object needs no second patch.
void AdmissionReview(std::string_view input);
#endif
#ifdef TESSERA_FUZZ_KUBE
// The input is a letter for the type, and an object in the encoding of the API server. Reading the
// object, writing it and reading it again gives the same object.
void KubeObject(std::string_view input);
// An accepted kubeconfig has an address, and at most one kind of credentials.
void Kubeconfig(std::string_view input);
// The input is a letter for the encoding, and the bytes of a watch. The events are the same
// wherever the bytes are cut into pieces.
void WatchEvents(std::string_view input);
#endif
#ifdef TESSERA_FUZZ_NET
// The input is what an HTTP/2 client sends after its preface. Every request that reaches the
// handler is within the server's limits, the server sends only whole frames, and the connection
// ends once. The requests are the same wherever the bytes are cut into pieces.
void Http2Server(std::string_view input);
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
#ifdef TESSERA_FUZZ_NET
    Target{"http2_server", Http2Server},
#endif
};

}  // namespace tessera::fuzz
