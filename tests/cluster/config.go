// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"tessera.dev/tests/cluster/internal/supervisor"
)

// Addresses are the same in every cluster, because each has its own network namespaces.
const (
	headIP       = "10.250.0.1"
	serviceIP    = "10.0.0.1" // of the service "kubernetes"; an address of the control plane here
	serviceRange = "10.0.0.0/24"
	podRange     = "10.251.0.0/16"
	dnsIP        = "10.0.0.10"
	apiPort      = 443
	etcdURL      = "http://127.0.0.1:2379" // inside the control plane's namespace, unreachable for pods
)

var insideURL = fmt.Sprintf("https://%s:%d", headIP, apiPort)

func nodeIP(i int) string    { return fmt.Sprintf("10.250.1.%d", i) }
func podSubnet(i int) string { return fmt.Sprintf("10.251.%d.0/24", i) } // in podRange

// keep lists the directories that machines share with the host: their own, the programs, and the source tree,
// so that programs built while a cluster runs can run in it.
func (c *Cluster) keep() []string {
	return append([]string{c.Parts.Cache, c.Parts.Tree, c.Dir}, c.options.Share...)
}

type object = map[string]any

func encode(value any) string {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err) // marshaling literals cannot fail
	}
	return string(content) + "\n"
}

// headSpec describes the control plane.
func (c *Cluster) headSpec(groups []string) *supervisor.Spec {
	config := func(name string) string { return filepath.Join(c.machineDir(&c.Head), name) }
	program := func(name string, flags ...string) supervisor.Component {
		argv := append([]string{c.Parts.Kubernetes, name}, append(flags, c.options.Flags[name]...)...)
		return supervisor.Component{Name: name, Argv: argv}
	}
	client := func(name string) []string {
		return []string{
			"--authentication-kubeconfig=" + config(name), "--authorization-kubeconfig=" + config(name),
			"--bind-address=127.0.0.1",
		}
	}
	return &supervisor.Spec{
		Hostname: c.Head.Name, Keep: c.keep(), Tied: c.options.Tied,
		LogDir: c.logDir(&c.Head), Socket: c.socket(&c.Head),
		CgroupDirs: groups, ProxyTo: fmt.Sprintf("%s:%d", headIP, apiPort),
		Private: supervisor.Private{
			Overlays: []string{"/etc"},
			Files: map[string]string{
				schedulerKubeconfig: c.kubeconfig(insideURL, c.pki("kube-scheduler")),
			},
		},
		Components: append([]supervisor.Component{
			program("etcd", "--name=etcd", "--data-dir="+config("etcd"), "--unsafe-no-fsync",
				"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
				"--listen-peer-urls=http://127.0.0.1:2380", "--log-level=warn"),
			program("kube-apiserver", c.apiserverFlags()...),
			program("kube-controller-manager", append(client("kube-controller-manager.kubeconfig"),
				"--kubeconfig="+config("kube-controller-manager.kubeconfig"),
				"--service-account-private-key-file="+c.pki("sa.key"), "--root-ca-file="+c.pki("ca.crt"),
				"--cluster-signing-cert-file="+c.pki("ca.crt"), "--cluster-signing-key-file="+c.pki("ca.key"),
				"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
				"--use-service-account-credentials", "--leader-elect=false", "--controllers=*")...),
			program("kube-scheduler", append(client("kube-scheduler.kubeconfig"),
				"--config="+c.schedulerConfigFile(), "--leader-elect=false",
				"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"))...),
		}, c.proxies(&c.Head)...),
	}
}

func (c *Cluster) apiserverFlags() []string {
	// Without endpoints of the service "kubernetes", kube-proxy would reject its address.
	endpoints := "none"
	if c.Services {
		endpoints = "lease"
	}
	return []string{
		"--etcd-servers=" + etcdURL, "--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", apiPort),
		"--advertise-address=" + headIP, "--endpoint-reconciler-type=" + endpoints,
		"--service-cluster-ip-range=" + serviceRange, "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + c.pki("ca.crt"),
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki("sa.pub"), "--service-account-signing-key-file=" + c.pki("sa.key"),
		"--kubelet-client-certificate=" + c.pki("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + c.pki("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		"--enable-aggregator-routing=true",
	}
}

// nodeSpec describes node i, from 1.
func (c *Cluster) nodeSpec(i int, groups []string) *supervisor.Spec {
	m := &c.Nodes[i-1]
	dir := c.machineDir(m)
	tools := map[string]string{"/usr/local/bin/kubectl": c.Parts.Kubectl}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		tools["/usr/local/bin/"+name] = filepath.Join(c.Parts.Containerd, name)
	}
	return &supervisor.Spec{
		Hostname: m.Name, Keep: c.keep(), Tied: c.options.Tied,
		LogDir: c.logDir(m), Socket: c.socket(m), CgroupDirs: groups,
		Private: supervisor.Private{
			System:   true,
			Overlays: []string{"/etc", "/opt", "/usr", "/var"},
			Binds: map[string]string{
				"/var/lib/kubelet":    filepath.Join(dir, "kubelet"),
				"/var/lib/containerd": filepath.Join(dir, "containerd"),
				"/var/log/pods":       filepath.Join(c.logDir(m), "pods"),
				// Other engines also need a disk for their overlays.
				"/var/lib/containers": filepath.Join(dir, "containers"),
				"/var/lib/docker":     filepath.Join(dir, "docker"),
			},
			Files: map[string]string{
				"/etc/containerd/config.toml":     c.containerdConfig(),
				"/etc/cni/net.d/10-pods.conflist": cniConfig(i),
				"/etc/kubernetes/kubelet.json":    c.kubeletConfig(m),
				"/etc/hosts":                      "127.0.0.1 localhost\n" + m.IP + " " + m.Name + "\n",
				"/etc/resolv.conf":                "",
				"/etc/containerd/conf.d/README":   "Drop-ins NAME.toml are read when containerd starts.\n",
			},
			Links: tools,
		},
		Components: append([]supervisor.Component{
			{Name: "containerd", Argv: append([]string{filepath.Join(c.Parts.Containerd, "containerd")},
				c.options.Flags["containerd"]...)},
			{Name: "kubelet", Argv: append([]string{
				c.Parts.Kubernetes, "kubelet", "--config=/etc/kubernetes/kubelet.json",
				"--kubeconfig=" + filepath.Join(dir, "kubelet.kubeconfig"),
				"--hostname-override=" + m.Name, "--node-ip=" + m.IP, "-v=2",
			}, c.options.Flags["kubelet"]...)},
		}, c.proxies(m)...),
	}
}

// containerdConfig is the main configuration file of containerd; drop-ins are in conf.d. `tessera-runtime
// configure` changes both as it would on a real node.
func (c *Cluster) containerdConfig() string {
	lines := []string{
		"version = 3",
		`imports = ["/etc/containerd/conf.d/*.toml"]`,
		"",
		"[plugins.'io.containerd.cri.v1.images']",
		fmt.Sprintf("  snapshotter = %q", c.Snapshotter),
		"",
		"[plugins.'io.containerd.cri.v1.images'.pinned_images]",
		fmt.Sprintf("  sandbox = %q", PauseImage),
		"",
		"[plugins.'io.containerd.cri.v1.runtime']",
		"  disable_apparmor = true",
		fmt.Sprintf("  restrict_oom_score_adj = %t", !maySetOOMScore()),
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.cni]",
		`  bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]`,
		`  conf_dir = "/etc/cni/net.d"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd]",
		`  default_runtime_name = "runc"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]",
		`  runtime_type = "io.containerd.runc.v2"`,
		"",
	}
	return strings.Join(lines, "\n")
}

// maySetOOMScore returns whether this process may lower an OOM score. That needs CAP_SYS_RESOURCE, which root in
// a container or in a small VM may lack.
func maySetOOMScore() bool {
	const path, less = "/proc/self/oom_score_adj", "-1"
	before, err := os.ReadFile(path)
	if err != nil || os.WriteFile(path, []byte(less), 0) != nil {
		return false
	}
	return os.WriteFile(path, before, 0) == nil
}

func cniConfig(i int) string {
	return encode(object{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []object{
			{
				"type": "bridge", "bridge": "pods0", "isDefaultGateway": true, "hairpinMode": true,
				"ipam": object{
					"type": "host-local", "dataDir": "/run/cni/addresses",
					"ranges": [][]object{{{"subnet": podSubnet(i)}}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	})
}

func (c *Cluster) kubeletConfig(m *Machine) string {
	config := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true},
			"x509": object{"clientCAFile": c.pki("ca.crt")},
		},
		"authorization":            object{"mode": "Webhook"},
		"tlsCertFile":              c.pki(m.Name + "-server.crt"),
		"tlsPrivateKeyFile":        c.pki(m.Name + "-server.key"),
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"cgroupDriver":             "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
		"cgroupsPerQOS": true, "enforceNodeAllocatable": []string{},
		"nodeStatusUpdateFrequency": "1s", "syncFrequency": "5s", "serializeImagePulls": false,
		"evictionHard": object{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"localStorageCapacityIsolation": false, "makeIPTablesUtilChains": false, "resolvConf": "",
		"oomScoreAdj": 0, "maxOpenFiles": 20000, "readOnlyPort": 0,
		// No DNS server listens here, so connections are refused at once. Without an address, every pod would
		// get a warning Event.
		"clusterDNS": []string{dnsIP}, "clusterDomain": "cluster.local",
	}
	maps.Copy(config, c.options.KubeletConfig)
	return encode(config)
}

func (c *Cluster) kubeconfig(server, certificate string) string {
	return encode(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "tessera",
		"clusters": []object{{"name": "tessera", "cluster": object{
			"server": server, "certificate-authority": c.pki("ca.crt"),
		}}},
		"users": []object{{"name": "user", "user": object{
			"client-certificate": certificate + ".crt", "client-key": certificate + ".key",
		}}},
		"contexts": []object{{"name": "tessera", "context": object{"cluster": "tessera", "user": "user"}}},
	})
}
