// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	gpusPerNode = 8
	gpuBytes    = 80 << 30
	gpuModel    = "NVIDIA A100-SXM4-80GB"
	wholeGPU    = "nvidia.com/gpu"
	workers     = 24
	namespace   = "default"
)

type object = map[string]any

func nodeName(n int) string            { return fmt.Sprintf("node-%05d", n) }
func uuidOf(node string, i int) string { return fmt.Sprintf("GPU-%s-%d", node, i) }

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // only for our own literals
	}
	return string(text)
}

// request sends a request and reads the answer to its end.
func (b *bench) request(ctx context.Context, method, path, kind string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, b.cluster.URL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", kind)
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, answer)
	}
	return answer, err
}

// each runs work for 0 … count-1, many at a time, and prints how long all of it took.
func each(ctx context.Context, what string, count int, work func(i int) error) error {
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				if err := work(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	fmt.Fprintf(os.Stderr, "%d %s in %.1f s\n", count, what, time.Since(begin).Seconds())
	return context.Cause(ctx)
}

func (b *bench) createNodes(ctx context.Context) error {
	return each(ctx, "nodes", b.nodes, func(n int) error {
		name := nodeName(n)
		var gpus []object
		links := [][]string{}
		for i := range gpusPerNode {
			gpus = append(gpus, object{"uuid": uuidOf(name, i), "index": i, "minor": i, "model": gpuModel,
				"bytes": gpuBytes, "pci": fmt.Sprintf("0000:%02x:00.0", i+7), "numa": i / 4, "cc": "8.0"})
			row := make([]string, i)
			for k := range row {
				row[k] = "NV12+SYS"
			}
			links = append(links, row)
		}
		devices := encode(object{"version": 1, "driver": "550.163.01", "cuda": 12040, "gpus": gpus, "links": links})
		amounts := object{"cpu": "128", "memory": "1Ti", "pods": "110", wholeGPU: fmt.Sprint(gpusPerNode)}
		node := encode(object{"apiVersion": "v1", "kind": "Node",
			"metadata": object{"name": name, "labels": object{"kubernetes.io/hostname": name},
				"annotations": object{"tessera.dev/devices": devices}},
			"status": object{"allocatable": amounts, "capacity": amounts, "conditions": []object{
				{"type": "Ready", "status": "True", "lastHeartbeatTime": nil, "lastTransitionTime": nil}}}})
		if _, err := b.request(ctx, "POST", "/api/v1/nodes", "application/json", []byte(node)); err != nil || !b.options.through {
			return err
		}
		// A new node has the taint not-ready until a controller has seen that the node is ready.
		_, err := b.request(ctx, "PATCH", "/api/v1/nodes/"+name, "application/merge-patch+json", []byte(`{"spec":{"taints":null}}`))
		return err
	})
}

func podObject(name, node string, annotations object) object {
	pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "namespace": namespace,
		"labels": object{"app": "bench"}, "annotations": annotations},
		"spec": object{"terminationGracePeriodSeconds": 0, "containers": []object{{"name": "main",
			"image": "registry.example/train:1", "resources": object{
				"requests": object{"cpu": "1", "memory": "4Gi"}, "limits": object{wholeGPU: "1"}}}}}}
	if node != "" {
		pod["spec"].(object)["nodeName"] = node
	}
	return pod
}

// createRunning puts pods on the first GPUs of the nodes in turn. It binds them as the scheduler does, and
// sets their status to running as a kubelet does.
func (b *bench) createRunning(ctx context.Context) error {
	pods := "/api/v1/namespaces/" + namespace + "/pods"
	return each(ctx, "running pods", b.running, func(p int) error {
		node, name := nodeName(p%b.nodes), fmt.Sprintf("old-%05d", p)
		share := object{"gpu": uuidOf(node, p/b.nodes), "milli": 1000, "bytes": gpuBytes}
		assignment := encode(object{"version": 1, "containers": object{"main": []object{share}}})
		pod := podObject(name, node, object{"tessera.dev/assignment": assignment})
		if _, err := b.request(ctx, "POST", pods, "application/json", []byte(encode(pod))); err != nil {
			return err
		}
		status := encode(object{"status": object{"phase": "Running"}})
		_, err := b.request(ctx, "PATCH", pods+"/"+name+"/status", "application/merge-patch+json", []byte(status))
		return err
	})
}

func (b *bench) createPods(ctx context.Context, prefix string, count int) error {
	return each(ctx, "waiting pods", count, func(p int) error {
		pod := podObject(fmt.Sprintf("%s-%05d", prefix, p), "", nil)
		_, err := b.request(ctx, "POST", "/api/v1/namespaces/"+namespace+"/pods", "application/json", []byte(encode(pod)))
		return err
	})
}
