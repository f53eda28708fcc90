// SPDX-License-Identifier: Apache-2.0

// Kubernetes and etcd as one program. The first argument names the component; every
// component is a process of its own, because each of them installs signal handlers and fills
// process-wide metric and feature-gate registries.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	// A link named after a component runs it, as busybox does; otherwise the first argument decides.
	name := filepath.Base(os.Args[0])
	if _, known := components[name]; !known && name != "etcd" {
		if len(os.Args) < 2 {
			fmt.Fprintln(os.Stderr, "usage: kubernetes COMPONENT [FLAG...]")
			os.Exit(2)
		}
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	default:
		make, known := components[name]
		if !known {
			fmt.Fprintf(os.Stderr, "kubernetes: no component %q\n", name)
			os.Exit(2)
		}
		os.Exit(cli.Run(make()))
	}
}
