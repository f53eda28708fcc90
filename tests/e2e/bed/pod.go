// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Container is one container of a test pod.
type Container struct {
	Name       string
	Image      string         // vectoradd or a tests/ image
	GPUs       int            // nvidia.com/gpu
	Limits     map[string]int // further resources
	Args       []string
	Env        map[string]string
	Privileged bool
	AddCaps    []string // capabilities beyond the engine's own
}

// Pod is a pod of the namespace "default".
type Pod struct {
	Name           string
	Init           []Container
	Containers     []Container
	Labels         map[string]string
	Annotations    map[string]string
	NodeSelector   map[string]string
	ReadOnlyRootFS bool
	RuntimeClass   string
	PriorityClass  string
	RestartPolicy  string // Never if empty
	User           string // the user id of its processes; the image's user if empty
	HostPath       string // a folder of the node that containers see as /node
	Claim          string // a PersistentVolumeClaim that the pod needs but does not mount in a container
	NoToken        bool   // without a service account token, for which the kubelet needs the API server
}

// Object is a part of a manifest.
type Object = map[string]any

func (c Container) manifest(readOnly bool) Object {
	image := "tessera.dev/samples/vectoradd:dev"
	if c.Image != "" && c.Image != "vectoradd" {
		image = "tessera.dev/tests/" + c.Image + ":dev"
	}
	m := Object{"name": c.Name, "image": image, "imagePullPolicy": "Never", "args": c.Args,
		"securityContext": Object{"readOnlyRootFilesystem": readOnly, "privileged": c.Privileged}}
	if len(c.AddCaps) > 0 {
		m["securityContext"].(Object)["capabilities"] = Object{"add": c.AddCaps}
	}
	limits := Object{}
	for resource, count := range c.Limits {
		limits[resource] = count
	}
	if c.GPUs > 0 {
		limits[WholeGPU] = c.GPUs
	}
	m["resources"] = Object{"limits": limits}
	var env []Object
	for name, value := range c.Env {
		env = append(env, Object{"name": name, "value": value})
	}
	m["env"] = env
	return m
}

// Create makes the pod. At the end of the test, the pod is deleted, and the test waits until the API server no longer
// has it.
func (p Pod) Create(t *testing.T) string {
	t.Helper()
	if err := p.TryCreate(t); err != nil {
		t.Fatal(err)
	}
	return p.Name
}

// TryCreate is like Create, but returns the API server's error.
func (p Pod) TryCreate(t *testing.T) error {
	t.Helper()
	err := Call(http.MethodPost, podsPath, p.manifest(), nil)
	if err == nil {
		deleteAtTheEnd(t, p.Name)
	}
	return err
}

func (p Pod) manifest() Object {
	list := func(containers []Container) []Object {
		var all []Object
		for _, c := range containers {
			all = append(all, c.manifest(p.ReadOnlyRootFS))
		}
		return all
	}
	restart := p.RestartPolicy
	if restart == "" {
		restart = "Never"
	}
	spec := Object{"restartPolicy": restart, "terminationGracePeriodSeconds": 1,
		"nodeSelector": p.NodeSelector, "initContainers": list(p.Init), "containers": list(p.Containers)}
	if p.RuntimeClass != "" {
		spec["runtimeClassName"] = p.RuntimeClass
	}
	if p.PriorityClass != "" {
		spec["priorityClassName"] = p.PriorityClass
	}
	if p.User != "" {
		user, _ := strconv.Atoi(p.User)
		spec["securityContext"] = Object{"runAsUser": user}
	}
	if p.HostPath != "" {
		spec["volumes"] = []Object{{"name": "node", "hostPath": Object{"path": p.HostPath}}}
		for _, container := range spec["containers"].([]Object) {
			container["volumeMounts"] = []Object{{"name": "node", "mountPath": "/node"}}
		}
	}
	if p.Claim != "" {
		spec["volumes"] = []Object{{"name": "claim", "persistentVolumeClaim": Object{"claimName": p.Claim}}}
	}
	if p.NoToken {
		spec["automountServiceAccountToken"] = false
	}
	return Object{"apiVersion": "v1", "kind": "Pod", "metadata": Object{
		"name": p.Name, "namespace": "default", "labels": p.Labels, "annotations": p.Annotations}, "spec": spec}
}

// podsOf are the pods that tests must still delete. A subtest deletes its pods before its parent does.
var (
	podsMutex sync.Mutex
	podsOf    = map[*testing.T][]string{}
)

// deleteAtTheEnd deletes all pods of a test in one cleanup, which the first pod registers. Cleanups run in reverse
// order, so the cleanups that are registered later run before the pods are deleted.
func deleteAtTheEnd(t *testing.T, name string) {
	podsMutex.Lock()
	defer podsMutex.Unlock()
	if podsOf[t] == nil {
		t.Cleanup(func() {
			podsMutex.Lock()
			names := podsOf[t]
			delete(podsOf, t)
			podsMutex.Unlock()
			DeletePods(t, names...)
		})
	}
	podsOf[t] = append(podsOf[t], name)
}

// DeletePods deletes pods of the namespace "default" and waits for their removal, after showing them
// if the test failed.
func DeletePods(t *testing.T, names ...string) {
	t.Helper()
	if t.Failed() {
		text, _ := Shared.Kubectl(ctx, append([]string{"describe", "pod"}, names[:min(len(names), 8)]...)...)
		t.Log(text)
	}
	for _, name := range names {
		if err := Call(http.MethodDelete, podsPath+"/"+name, nil, nil); err != nil && !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	deadline := time.Now().Add(2 * PodTimeout)
	for _, name := range names {
		for !errors.Is(Call(http.MethodGet, podsPath+"/"+name, nil, nil), ErrNotFound) {
			if time.Now().After(deadline) {
				t.Errorf("pod %s still exists %s after it was deleted", name, 2*PodTimeout)
				return
			}
			time.Sleep(pollPeriod)
		}
	}
}

// Single returns a pod with one container that adds vectors on that many GPUs.
func Single(name string, count int, args ...string) Pod {
	return Pod{Name: name, Containers: []Container{{Name: "main", GPUs: count, Args: args}}}
}
