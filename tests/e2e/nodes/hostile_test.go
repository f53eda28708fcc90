// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

// unharmed checks, at the end of a test, that a pod of another user still runs on the GPU that the scheduler chose.
func unharmed(t *testing.T) {
	t.Helper()
	pod := sharing("unharmed", map[string]int{gpuMem: 4})
	pod.Create(t)
	checkGPUs(t, []string{pod.Name}, sizes(t))
	bed.DeletePods(t, pod.Name)
}

// forgeries are annotations in all dialects that assign the first GPU of n1 to a pod.
func forgeries(t *testing.T) map[string]string {
	t.Helper()
	uuid := bed.UUIDs(t, 1)[0]
	return map[string]string{
		"tessera.dev/assignment": fmt.Sprintf(
			`{"version":1,"containers":{"main":[{"gpu":%q,"milli":1000,"bytes":85899345920}]}}`, uuid),
		"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "80", "ALIYUN_COM_GPU_MEM_DEV": "80",
		"ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
		"tencent.com/predicate-gpu-idx-0": "0", "tencent.com/predicate-node": "n1", "tencent.com/gpu-assigned": "true",
		"scheduler.framework.gpushare.allocation": `{"main":{"0":80}}`,
	}
}

func TestForgedAnnotationsGiveNothing(t *testing.T) {
	bed.WireScheduler(t)
	forged := forgeries(t)
	pod := sharing("forger", map[string]int{vcudaCore: 30, vcudaMemory: 8})
	pod.NodeSelector, pod.Annotations = onT4, forged
	pod.Create(t)
	checkGPUs(t, []string{pod.Name}, sizes(t))
	for name, value := range forged {
		if got := bed.ReadPod(t, pod.Name).Metadata.Annotations[name]; got == value && name != "tencent.com/gpu-assigned" && name != "tencent.com/predicate-gpu-idx-0" {
			t.Errorf("%s is still the forged %s", name, value)
		}
	}
	// Later changes are rejected instead of removed.
	err := bed.Call(http.MethodPatch, "/api/v1/namespaces/default/pods/"+pod.Name,
		bed.Object{"metadata": bed.Object{"annotations": forged}}, nil)
	if err == nil || !strings.Contains(err.Error(), "annotations that assign GPUs are written only by Tessera") {
		t.Errorf("a forged change was not rejected: %v", err)
	}
	// They are also rejected in a namespace that the webhook does not cover.
	err = bed.Call(http.MethodPost, "/api/v1/namespaces/kube-system/pods?dryRun=All", bed.Object{"apiVersion": "v1", "kind": "Pod",
		"metadata": bed.Object{"name": "forger", "annotations": forged},
		"spec":     bed.Object{"containers": []bed.Object{{"name": "main", "image": "none"}}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "written only by Tessera") {
		t.Errorf("a forged creation without the webhook was not rejected: %v", err)
	}
	unharmed(t)
}

func TestOversizedAnnotationsAreRejectedOrRemoved(t *testing.T) {
	bed.WireScheduler(t)
	pod := sharing("long-winded", map[string]int{gpuMem: 4})
	pod.Annotations = map[string]string{"tessera.dev/gpu-uuids": strings.Repeat("GPU-00000000-0000-0000-0000-000000000000,", 4000)}
	if err := pod.TryCreate(t); err == nil || !strings.Contains(err.Error(), "16384") {
		t.Errorf("a list of 164 kB was not rejected: %.300v", err)
	}
	pod.Annotations = forgeries(t)
	for name := range pod.Annotations {
		pod.Annotations[name] = strings.Repeat("9", 24<<10)
	}
	pod.Create(t)
	checkGPUs(t, []string{pod.Name}, sizes(t))
	unharmed(t)
}

// curl runs a shell script on the control plane, from where kube-scheduler and the API server make their calls.
// The script has the address of a Service in $ADDRESS. Returns what the script printed.
func curl(t *testing.T, service, script string) string {
	t.Helper()
	text, err := bed.Shared.Exec(ctx, 0, "env", "ADDRESS="+address(t, service), "/bin/sh", "-c", script+" || true")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// answers repeats a script of curl until its answer has these texts, and returns the answer. For some seconds no replica
// of the scheduler may lead, and no replica may answer, if the machine has stood still.
func answers(t *testing.T, service, script string, wants ...string) (got string) {
	t.Helper()
	if !bed.Within(bed.PodTimeout, func() bool {
		got = curl(t, service, script)
		return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(got, want) })
	}) {
		t.Errorf("%s answers to %.200s without one of %q: %.600s", service, script, wants, got)
	}
	return got
}

const (
	// post is the beginning of a curl command that sends JSON and also prints the status.
	post = `curl -sS -m 60 -w ' HTTP %{http_code}' -H 'Content-Type: application/json' `
	// extender is the beginning of a post to the extender with kube-scheduler's certificate. The name of the
	// extender's method must follow.
	extender = post + asKubeScheduler + `https://$ADDRESS:9410/v1/extender/`
	// asKubeScheduler are the flags for kube-scheduler's certificate and CA.
	asKubeScheduler = `--cacert ` + bed.ClientFiles + `/ca.crt --cert ` + bed.ClientFiles + `/tls.crt --key ` + bed.ClientFiles + `/tls.key `
	// asking is the beginning of the extender's input: a pod with a share, without the nodes.
	asking = `{"Pod":{"metadata":{"name":"x","namespace":"default","uid":"x"},"spec":{"containers":[{"name":"main",` +
		`"resources":{"limits":{"aliyun.com/gpu-mem":"4"}}}]}}`
)

func TestAnInvalidNodeAnnotationExcludesOnlyThatNode(t *testing.T) {
	bed.WireScheduler(t)
	for name, value := range map[string]string{
		"wrong-json": `{"version":1,"gpus":[`, "no-object": `[1,2]`,
		"many-gpus": `{"version":1,"gpus":[{}` + strings.Repeat(",{}", 80_000) + `]}`, // all that 256 KiB can hold
		"negative":  `{"version":1,"gpus":[{"index":0,"uuid":"GPU-1","model":"x","bytes":-1}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			strange := bed.Object{"apiVersion": "v1", "kind": "Node", "metadata": bed.Object{
				"name": "strange", "annotations": bed.Object{"tessera.dev/devices": value}}}
			if err := bed.Call(http.MethodPost, "/api/v1/nodes", strange, nil); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { bed.Kubectl(t, "delete", "node", "strange") })
			var got string
			bed.Eventually(t, bed.PodTimeout, "the scheduler says what is wrong with the node", func() bool {
				got = curl(t, "tessera-scheduler", extender+`filter -d '`+asking+`,"NodeNames":["strange","n3"]}'`)
				return strings.Contains(got, "node strange: tessera.dev/devices: ")
			})
			if !strings.Contains(got, `"NodeNames":["n3"]`) {
				t.Errorf("the answer does not name the other node: %.600s", got)
			}
			t.Logf("%.400s", got)
		})
	}
	unharmed(t)
}

func TestTheExtenderRefusesWhatItCannotAnswerAndGoesOn(t *testing.T) {
	bed.WireScheduler(t)
	for what, each := range map[string]struct {
		script string
		wants  []string
	}{
		"50 MiB": {`head -c 52428800 /dev/zero | tr '\0' ' ' | ` + extender + `filter -H Expect: --data-binary @- 2>&1`,
			[]string{"413"}},
		"rubbish": {extender + `filter -d '{"Pod":['`, []string{`"NodeNames":null`, `"Error":"JSON ends`}},
		"unknown nodes": {extender + `filter -d '` + asking + `,"NodeNames":["nowhere","n2"]}'`,
			[]string{"HTTP 200", `"NodeNames":["n2"]`, `"nowhere":"`}},
		"an unknown pod": {extender + `bind -d '{"PodName":"absent","PodNamespace":"default","PodUID":"none","Node":"n2"}'`,
			[]string{"absent"}},
		"an unknown path": {extender + `../../v2/everything -d '{}'`, []string{"HTTP 404"}},
	} {
		t.Run(what, func(t *testing.T) { answers(t, "tessera-scheduler", each.script, each.wants...) })
	}
	unharmed(t)
}

// address returns the address of a Service.
func address(t *testing.T, service string) string {
	t.Helper()
	var object struct{ Spec struct{ ClusterIP string } }
	bed.Get(t, ours+"/services/"+service, &object)
	return object.Spec.ClusterIP
}

// leaderIP returns the address of the leader.
func leaderIP(t *testing.T) string {
	t.Helper()
	_, pod := leader(t)
	var object bed.PodObject
	bed.Get(t, ours+"/pods/"+pod, &object)
	return object.Status.PodIP
}

// stuck creates a pod with these limits whose selector matches no node, so that kube-scheduler never asks the
// extender about the pod. Returns the extender's input that would bind the pod to n1.
func stuck(t *testing.T, name string, limits map[string]int) string {
	t.Helper()
	pod := sharing(name, limits)
	pod.NodeSelector = map[string]string{"kubernetes.io/hostname": "nowhere"}
	pod.Create(t)
	bed.Eventually(t, bed.PodTimeout, name+" is refused everywhere", func() bool { return waitsFor(t, name) != "" })
	return fmt.Sprintf(`{"PodName":%q,"PodNamespace":"default","PodUID":%q,"Node":"n1"}`, name, bed.ReadPod(t, name).Metadata.UID)
}

func TestAPodWithoutTheCertificateIsNotAnsweredByTheExtender(t *testing.T) {
	bed.WireScheduler(t)
	binding := stuck(t, "pawn", map[string]int{gpuMem: 4})
	host := address(t, "tessera-scheduler")
	for name, each := range map[string]struct{ url, want string }{
		"plain":           {"http://" + host + ":9410", "this port serves HTTPS only"},
		"no-certificate":  {"https://" + host + ":9410", `Post "https://`}, // the handshake fails: there is no answer
		"the-status-port": {"http://" + leaderIP(t) + ":9411", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := bed.Pod{Name: "caller-" + name, Containers: []bed.Container{{Name: "main", Image: "probe",
				Args: []string{"--ask=" + each.url + "/v1/extender/bind", "--question=" + binding}}}}.Create(t)
			bed.WaitPhase(t, pod, "Succeeded")
			var report struct{ Answer string }
			if text := bed.Logs(t, pod); json.Unmarshal([]byte(text), &report) != nil {
				t.Fatal(text)
			}
			if !strings.Contains(report.Answer, each.want) || strings.HasPrefix(report.Answer, "200") {
				t.Errorf("the extender answered %q", report.Answer)
			}
			t.Log(report.Answer)
		})
	}
	if got := nodeOf(t, "pawn"); got != "" {
		t.Errorf("pawn was bound to %s", got)
	}
	unharmed(t)
}

// A caller with the certificate can bind only pods that were filtered for the node.
func TestOnlyAPodThatWasFilteredForTheNodeIsBound(t *testing.T) {
	bed.WireScheduler(t)
	for name, each := range map[string]struct {
		limits map[string]int
		want   string
	}{
		"against-its-selector": {map[string]int{gpuMem: 4}, "filter did not name node n1"},
		"without-gpus":         {map[string]int{}, "requests no GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			answers(t, "tessera-scheduler", extender+`bind -d '`+stuck(t, name, each.limits)+`'`, each.want)
			if node := nodeOf(t, name); node != "" {
				t.Errorf("the pod was bound to %s", node)
			}
		})
	}
	unharmed(t)
}

func TestTheWebhookAnswersNobodyWithoutTLS(t *testing.T) {
	const empty, page = `curl -ksS -m 60 -w ' HTTP %{http_code}' -d '{}' `, `://$ADDRESS:443/admission/validate 2>&1`
	answers(t, "tessera-webhook", empty+"http"+page, "HTTP 400", "this port serves HTTPS only")
	answers(t, "tessera-webhook", empty+"https"+page, "HTTP 400")
	wrong := sharing("wrong", map[string]int{vcudaCore: 150})
	if err := wrong.TryCreate(t); err == nil || !strings.Contains(err.Error(), "multiple of 100") {
		t.Errorf("the API server did not report the webhook's rejection: %v", err)
	}
}

func TestATenantGetsNothingFromTheGrantSocket(t *testing.T) {
	bed.WireScheduler(t)
	victim := sharing("victim", map[string]int{gpuMem: 4})
	victim.Create(t)
	checkGPUs(t, []string{victim.Name}, sizes(t))
	object := bed.ReadPod(t, victim.Name)
	question, err := json.Marshal(bed.Object{"kind": "grant", "pod_uid": object.Metadata.UID, "pod_namespace": "default",
		"pod_name": victim.Name, "container": "main", "tokens": []bed.Object{{
			"variable": "TESSERA_GRANT_ALIYUN_COM_GPU_MEM", "value": "v1:00:" + strings.Repeat("0", 64) + ":m0"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, each := range map[string]struct {
		path, user, want string
	}{
		"by-its-path":  {"/run/tessera/grant.sock", "0", "no such file"},
		"as-a-user":    {"/node/grant.sock", "1000", "permission denied"},
		"as-the-owner": {"/node/grant.sock", "0", "token"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := bed.Pod{Name: "tenant-" + name, User: each.user, Containers: []bed.Container{{Name: "main", Image: "probe",
				Args: []string{"--ask=" + each.path, "--question=" + string(question)}}}}
			if strings.HasPrefix(each.path, "/node/") {
				pod.HostPath = "/run/tessera"
			}
			pod.NodeSelector = map[string]string{"kubernetes.io/hostname": object.Spec.NodeName}
			pod.Create(t)
			bed.WaitPhase(t, pod.Name, "Succeeded")
			var report struct {
				Answer  string
				Devices []string
			}
			if text := bed.Logs(t, pod.Name); json.Unmarshal([]byte(text), &report) != nil {
				t.Fatal(text)
			}
			if !strings.Contains(strings.ToLower(report.Answer), each.want) || strings.Contains(report.Answer, "devices") || len(report.Devices) > 0 {
				t.Errorf("the tenant got the answer %q and sees %v", report.Answer, report.Devices)
			}
			t.Log(report.Answer)
		})
	}
	if got := bed.ReadPod(t, victim.Name).Status; got.Phase != "Running" || got.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the victim is %+v", got)
	}
	unharmed(t)
}

// The processes of a pod that is deleted by force may keep running, as kubectl warns. The kubelet gives its device
// ids to the next pod at once, but no pod may get the GPU before the old container has ended.
func TestAForceDeletedPodDoesNotShareItsGPUWithTheNextOne(t *testing.T) {
	bed.WireScheduler(t)
	first := holder("forced-0", models[2])
	second := holder("forced-1", models[2])
	for _, pod := range []bed.Pod{first, second} {
		pod.Create(t)
		bed.WaitPhase(t, pod.Name, "Running")
	}
	uuid := held(t, first.Name)
	goOn := bed.Freeze(t, "containerd", 3) // keeps the old container running
	if err := bed.Call(http.MethodDelete, "/api/v1/namespaces/default/pods/"+first.Name+"?gracePeriodSeconds=0", nil, nil); err != nil {
		t.Fatal(err)
	}
	next := holder("forced-next", models[2])
	next.RestartPolicy = "OnFailure" // its container is refused while the old container runs
	next.Create(t)
	time.Sleep(3 * time.Second)
	goOn()
	checkGPUs(t, []string{next.Name, second.Name}, sizes(t))
	if got := held(t, next.Name); got != uuid {
		t.Errorf("the next pod holds %s and not %s, which is free", got, uuid)
	}
}
