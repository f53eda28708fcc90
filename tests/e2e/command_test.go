// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

func testNamespaces(t *testing.T) string {
	t.Helper()
	return bed.Kubectl(t, "get", "namespaces", "-l", "app.kubernetes.io/name=tessera-test", "-o", "name")
}

func TestTesseraTestPassesAndLeavesNothing(t *testing.T) {
	text, err := bed.TesseraCommand("test", "--image-pull-policy", "Never").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for _, name := range []string{"whole-gpu", "share", "linked-pair", "memory-limit", "default-deny"} {
		if line := bed.LineOf(string(text), name); !strings.Contains(line, " ok ") {
			t.Errorf("%s: %q\n%s", name, line, text)
		}
	}
	if left := testNamespaces(t); left != "" {
		t.Errorf("namespaces of tessera test are left: %s", left)
	}
}

func TestTesseraTestNamesTheReasonOfAFailure(t *testing.T) {
	var text []byte
	var err error
	for _, seconds := range []string{"10", "60"} { // on a loaded machine the kubelet may need longer for its report
		text, err = bed.TesseraCommand("test", "--only", "whole-gpu", "--image", "tessera.dev/missing:dev",
			"--image-pull-policy", "Never", "--case-timeout", seconds).CombinedOutput()
		if err == nil || strings.Contains(string(text), "ErrImageNeverPull") {
			break
		}
	}
	if err == nil || !strings.Contains(string(text), "ErrImageNeverPull") {
		t.Errorf("%v\n%s", err, text)
	}
	if left := testNamespaces(t); left != "" {
		t.Errorf("namespaces of tessera test are left: %s", left)
	}
}

func TestAnInterruptedTesseraTestCleansUp(t *testing.T) {
	cmd := bed.TesseraCommand("test", "--only", "whole-gpu", "--image", "tessera.dev/missing:dev", "--image-pull-policy", "Never")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	bed.Eventually(t, bed.PodTimeout, "the test's namespace exists", func() bool { return testNamespaces(t) != "" })
	time.Sleep(time.Second)
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	if left := testNamespaces(t); left != "" {
		t.Errorf("namespaces of tessera test are left: %s", left)
	}
}

// sysdump returns a folder with the files of a sysdump.
func sysdump(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "x.tar.gz")
	if text, err := bed.TesseraCommand("sysdump", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if text, err := exec.Command("tar", "-xzf", file, "-C", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return folder
}

func TestASysdumpHasNoSecrets(t *testing.T) {
	const planted = "PLANTED-7f3a"
	bed.Kubectl(t, "-n", "tessera-system", "create", "secret", "generic", "planted", "--from-literal=x="+planted)
	t.Cleanup(func() { bed.TryKubectl("-n", "tessera-system", "delete", "secret", "planted") })
	pod := bed.Pod{Name: "with-secret", Annotations: map[string]string{"example.com/x": planted},
		Containers: []bed.Container{{Name: "main", GPUs: 1, Args: []string{"--hold", "600"}, Env: map[string]string{"TOKEN": planted}}}}.Create(t)
	bed.WaitPhase(t, pod, "Running")
	folder := sysdump(t)
	if _, err := os.Stat(filepath.Join(folder, "tessera-sysdump/pages/n1/metrics.txt")); err != nil {
		folder = sysdump(t) // the agent has three seconds for its answer
	}
	all, err := exec.Command("grep", "-rlE", planted+`|PRIVATE KEY|eyJ[A-Za-z0-9_-]+\.`, filepath.Join(folder, "tessera-sysdump")).Output()
	if err == nil {
		t.Errorf("secrets are in %s", all)
	}
	for _, name := range []string{"README.txt", "doctor.txt", "status.txt", "versions.json", "objects/nodes.json", "objects/pods-with-gpus.json", "pages/n1/metrics.txt"} {
		if info, err := os.Stat(filepath.Join(folder, "tessera-sysdump", name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing: %v", name, err)
		}
	}
	dumped, _ := os.ReadFile(filepath.Join(folder, "tessera-sysdump/objects/pods-with-gpus.json"))
	if !strings.Contains(string(dumped), pod) {
		t.Errorf("the pod with a GPU is missing: %s", dumped)
	}
	if logs, _ := filepath.Glob(filepath.Join(folder, "tessera-sysdump/logs/*/*.log")); len(logs) == 0 {
		t.Error("no logs")
	}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	bed.Pod{Name: "hopeful", Containers: []bed.Container{{Name: "main", Image: "probe", Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}}}, RestartPolicy: "Always"}.Create(t)
	bed.Pod{Name: "too-many", Containers: []bed.Container{{Name: "main", GPUs: gpus + 1}}}.Create(t)
	bed.Eventually(t, bed.PodTimeout, "doctor reports the pod that waits", func() bool {
		text, _ := bed.TesseraCommand("doctor", "-o", "custom-columns=C:.metadata.name,W:.where").CombinedOutput()
		return strings.Contains(string(text), "waiting-pods") && strings.Contains(string(text), "default/too-many")
	})
}

func TestVersionsOfAllComponents(t *testing.T) {
	text, err := bed.TesseraCommand("version").CombinedOutput()
	if err != nil || !strings.Contains(string(text), "kubernetes") || !strings.Contains(string(text), "tessera-agent") || !strings.Contains(string(text), "nvidia-driver") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The flags -l, --as and --as-group mean the same to tessera as to kubectl.
func TestSelectorsAndImpersonationMeanWhatTheyMeanForKubectl(t *testing.T) {
	for selector, want := range map[string]string{"nvidia.com/gpu.present=true": "node/n1\n", "nvidia.com/gpu.present!=true": "", "nvidia.com/gpu.count in (8,9)": "node/n1\n"} {
		text, err := bed.TesseraCommand("nodes", "-l", selector, "-o", "name").Output()
		if err != nil || string(text) != want {
			t.Errorf("-l %s: %v: %q", selector, err, text)
		}
	}
	cmd := bed.TesseraCommand("nodes", "--as", "stranger", "--as-group", "strangers")
	text, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 77 || !strings.Contains(string(text), "no permission") {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), text)
	}
}
