// SPDX-License-Identifier: Apache-2.0

// Command oldplugin offers aliyun.com/gpu-mem to the kubelet of its node, as gpushare's device plugin does. It
// gives every container the same GPU, as a number in a variable of the environment and without a token. It runs
// until it is killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "aliyun.com/gpu-mem"
	endpoint = "aliyungpushare.sock"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	minor, units int
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	var all []*api.Device
	for i := range p.units {
		all = append(all, &api.Device{ID: fmt.Sprintf("GPU-00000000-0000-0000-0000-000000000000-_-%d", i), Health: api.Healthy})
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: all}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		units := fmt.Sprint(len(container.DevicesIds))
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: map[string]string{
			"NVIDIA_VISIBLE_DEVICES":       fmt.Sprint(p.minor),
			"ALIYUN_COM_GPU_MEM_IDX":       fmt.Sprint(p.minor),
			"ALIYUN_COM_GPU_MEM_POD":       units,
			"ALIYUN_COM_GPU_MEM_CONTAINER": units,
			"ALIYUN_COM_GPU_MEM_DEV":       fmt.Sprint(p.units),
		}})
	}
	return answer, nil
}

func main() {
	p := &plugin{}
	flag.IntVar(&p.minor, "minor", 0, "the GPU that everybody gets")
	flag.IntVar(&p.units, "units", 80, "GiB on offer")
	flag.Parse()
	socket := filepath.Join(api.DevicePluginPath, endpoint)
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	kubelet, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	_, err = api.NewRegistrationClient(kubelet).Register(context.Background(),
		&api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource, Options: &api.DevicePluginOptions{}})
	if err != nil {
		log.Fatal(err)
	}
	select {}
}
