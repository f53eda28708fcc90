// SPDX-License-Identifier: Apache-2.0

// testcluster starts, inspects and removes Kubernetes clusters for tests; see the README.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	cluster "tessera.dev/tests/cluster"
)

const usage = `usage: testcluster COMMAND [FLAG...] [ARGUMENT...]

  build                             build Kubernetes, containerd, Helm and the pause program into the cache
  build helm                        build Helm alone, and print its path
  build crio                        build CRI-O into the cache, for tests of engines
  up [--nodes N] [--services]       start a cluster, or find it already running; see up --help
  down                              end it and remove every trace
  status                            its components
  wait                              until the API server answers and every node is Ready
  env                               lines for the shell: eval "$(testcluster env)"
  kubectl [--] ARGUMENT...          run kubectl against it
  helm [--] ARGUMENT...             run Helm against it
  exec [--node I] [--] COMMAND...   run a command inside node I (1 if not given; 0 is the control plane)
  load-image [--node I] FILE...     import image archives into node I, or into all
  configure-scheduler FILE          restart kube-scheduler with this KubeSchedulerConfiguration
  restart COMPONENT [--node I]      also stop and start; --signal NAME (TERM if not given)
  logs COMPONENT [--node I] [-f]    a component's log, or the "supervisor" of its machine
  save-logs FOLDER                  copy all logs into a new folder

Components: etcd kube-apiserver kube-controller-manager kube-scheduler kubelet containerd,
and kube-proxy with --services.
Every command but build takes --name NAME or --dir FOLDER (also $TESSERA_CLUSTER_DIR);
without them the cluster is called "default".
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1], os.Args[2:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "testcluster %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command string, args []string) error {
	switch command {
	case "build":
		if len(args) == 1 && args[0] == "crio" {
			return cluster.BuildCRIO(ctx, os.Stderr)
		}
		if len(args) == 1 && args[0] == "helm" {
			path, err := cluster.BuildHelm(ctx, os.Stderr)
			if err == nil {
				fmt.Println(path)
			}
			return err
		}
		if len(args) > 0 {
			return fmt.Errorf("%q is not crio or helm", args)
		}
		return cluster.Build(ctx, os.Stderr)
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	}
	o := &options{}
	rest, err := o.parse(command, args)
	if err != nil {
		return err
	}
	act, known := commands[command]
	if !known {
		return fmt.Errorf("no such command; try testcluster help")
	}
	return act(ctx, o, rest)
}

type options struct {
	cluster.Options
	node   int
	signal string
	follow bool
}

// parse accepts flags before and after arguments, but does not look at the command line that kubectl, helm or
// exec passes on.
func (o *options) parse(command string, args []string) ([]string, error) {
	flags := flag.NewFlagSet("testcluster "+command, flag.ContinueOnError)
	flags.StringVar(&o.Name, "name", "", "name of the cluster; its folder is "+cluster.DefaultRoot+"/NAME")
	flags.StringVar(&o.Dir, "dir", os.Getenv("TESSERA_CLUSTER_DIR"), "folder of the cluster")
	o.node, o.Log = -1, os.Stderr
	switch command {
	case "up":
		o.upFlags(flags)
	case "restart", "stop":
		flags.StringVar(&o.signal, "signal", "TERM", "how it ends: TERM, KILL, INT, HUP or ABRT")
	case "logs":
		flags.BoolVar(&o.follow, "f", false, "follow the log")
	}
	switch command {
	case "exec", "load-image", "restart", "stop", "start", "logs":
		flags.IntVar(&o.node, "node", -1, "node, from 1; 0 is the control plane")
	}
	verbatim := command == "kubectl" || command == "helm" || command == "exec"
	var rest []string
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		args = flags.Args()
		if verbatim {
			rest, args = args, nil
		} else if len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	if o.Name != "" {
		named := false
		flags.Visit(func(f *flag.Flag) { named = named || f.Name == "dir" })
		if !named {
			o.Dir = ""
		}
	}
	return rest, nil
}

func (o *options) upFlags(flags *flag.FlagSet) {
	o.Flags, o.KubeletConfig = map[string][]string{}, map[string]any{}
	flags.IntVar(&o.Nodes, "nodes", 1, "number of nodes")
	flags.BoolVar(&o.Services, "services", false, "run kube-proxy, so that addresses of services work")
	flags.Func("share", "FOLDER that nodes share with the host (repeatable)", func(dir string) error {
		o.Share = append(o.Share, dir)
		return nil
	})
	flags.Func("flag", "COMPONENT=FLAG for its command line (repeatable)", func(value string) error {
		name, extra, ok := strings.Cut(value, "=")
		if !ok {
			return errors.New("COMPONENT=FLAG is needed")
		}
		o.Flags[name] = append(o.Flags[name], extra)
		return nil
	})
	const field = "FIELD=JSON of every KubeletConfiguration (repeatable)"
	flags.Func("kubelet-config", field, func(value string) error {
		name, content, _ := strings.Cut(value, "=")
		var decoded any
		err := json.Unmarshal([]byte(content), &decoded)
		o.KubeletConfig[name] = decoded
		return err
	})
}

func (o *options) open() (*cluster.Cluster, error) {
	dir, err := o.Folder()
	if err != nil {
		return nil, err
	}
	return cluster.Open(dir)
}

// nodeOr returns the number of the requested node, or the default if none is requested.
func (o *options) nodeOr(other int) int {
	if o.node < 0 {
		return other
	}
	return o.node
}

// become replaces this program by the command, which then gets the terminal's signals. Of a variable that is set
// twice, such as the caller's own KUBECONFIG, the command gets the last value only.
func become(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	return fmt.Errorf("%s: %w", cmd.Path, syscall.Exec(cmd.Path, cmd.Args, cmd.Environ()))
}

var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	"ABRT": syscall.SIGABRT,
}

func (o *options) signalNumber() (syscall.Signal, error) {
	number, ok := signals[strings.TrimPrefix(strings.ToUpper(o.signal), "SIG")]
	if !ok {
		return 0, fmt.Errorf("unknown signal %q", o.signal)
	}
	return number, nil
}
