// SPDX-License-Identifier: Apache-2.0

// cri-run runs one pod with one container through the kubelet's interface (CRI) of containerd or CRI-O,
// prints what the container wrote, and removes the pod. It exits with the container's exit code.
//
//	cri-run --socket SOCKET --image IMAGE [--env NAME=VALUE]... NAME PROGRAM [ARGUMENT]...
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	deadline  = 30 * time.Second
	namespace = "team"
	// podUID is the UID of every pod. The pods run one after the other, so they can share it.
	podUID = "0f5a1c86-1c4f-4d0e-9b3c-0d6f6a9b1a11"
)

type options struct {
	socket, image, cgroupParent, handler, logs string
	env                                        []string
	name                                       string
	argv                                       []string
}

func parse() (*options, error) {
	var o options
	flag.StringVar(&o.socket, "socket", "", "the engine's socket")
	flag.StringVar(&o.image, "image", "", "an image that the engine has")
	flag.StringVar(&o.cgroupParent, "cgroup-parent", "", "the pod's cgroup")
	flag.StringVar(&o.handler, "handler", "", "the runtime handler (the engine's default)")
	flag.StringVar(&o.logs, "logs", "", "folder for the container's log")
	flag.Func("env", "NAME=VALUE, may be repeated", func(entry string) error {
		if !strings.Contains(entry, "=") {
			return fmt.Errorf("%q is not NAME=VALUE", entry)
		}
		o.env = append(o.env, entry)
		return nil
	})
	flag.Parse()
	if flag.NArg() < 2 || o.socket == "" || o.image == "" || o.logs == "" {
		return nil, fmt.Errorf("usage: cri-run --socket SOCKET --image IMAGE --logs FOLDER NAME PROGRAM [ARGUMENT]...")
	}
	o.name, o.argv = flag.Arg(0), flag.Args()[1:]
	return &o, nil
}

// labels returns the labels that the kubelet gives to a pod and its containers.
func (o *options) labels() map[string]string {
	return map[string]string{
		"io.kubernetes.pod.name": o.name, "io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.uid": podUID,
	}
}

func (o *options) sandbox() *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: o.name, Namespace: namespace, Uid: podUID},
		LogDirectory: o.logs,
		Labels:       o.labels(),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: o.cgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(),
			},
		},
	}
}

// The host's network, so that no CNI plugin is needed.
func namespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{
		Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD,
	}
}

func (o *options) container() *cri.ContainerConfig {
	labels := o.labels()
	labels["io.kubernetes.container.name"] = "main"
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"},
		Image:    &cri.ImageSpec{Image: o.image, UserSpecifiedImage: o.image},
		Command:  o.argv,
		Labels:   labels,
		LogPath:  o.name + ".log",
		Linux: &cri.LinuxContainerConfig{
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
		},
	}
	for _, entry := range o.env {
		name, value, _ := strings.Cut(entry, "=")
		config.Envs = append(config.Envs, &cri.KeyValue{Key: name, Value: []byte(value)})
	}
	return config
}

// run gives the container's exit code.
func (o *options) run(ctx context.Context, engine cri.RuntimeServiceClient) (int32, error) {
	pod := o.sandbox()
	sandbox, err := engine.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: o.handler})
	if err != nil {
		return 0, fmt.Errorf("RunPodSandbox: %w", err)
	}
	id := sandbox.PodSandboxId
	defer func() {
		// Removing the sandbox removes its containers.
		_, _ = engine.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		_, _ = engine.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	}()
	created, err := engine.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: id, Config: o.container(), SandboxConfig: pod})
	if err != nil {
		return 0, fmt.Errorf("CreateContainer: %w", err)
	}
	if _, err := engine.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		return 0, fmt.Errorf("StartContainer: %w", err)
	}
	for {
		status, err := engine.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: created.ContainerId})
		if err != nil {
			return 0, fmt.Errorf("ContainerStatus: %w", err)
		}
		if status.Status.State == cri.ContainerState_CONTAINER_EXITED {
			return status.Status.ExitCode, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// printLog prints the log without what the engine writes before each line: time, stream and F.
func (o *options) printLog() error {
	file, err := os.Open(filepath.Join(o.logs, o.name+".log"))
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if parts := strings.SplitN(lines.Text(), " ", 4); len(parts) == 4 {
			fmt.Println(parts[3])
		}
	}
	return lines.Err()
}

func main() {
	code, err := func() (int32, error) {
		o, err := parse()
		if err != nil {
			return 2, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		connection, err := grpc.NewClient("unix://"+o.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return 1, err
		}
		defer connection.Close()
		code, err := o.run(ctx, cri.NewRuntimeServiceClient(connection))
		if err != nil {
			return 1, err
		}
		return code, o.printLog()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cri-run:", err)
		if code == 0 {
			code = 1
		}
	}
	os.Exit(int(code))
}
