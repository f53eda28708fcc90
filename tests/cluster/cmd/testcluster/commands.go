// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"

	cluster "tessera.dev/tests/cluster"
)

var commands = map[string]func(context.Context, *options, []string) error{
	"up": up, "down": down, "status": status, "wait": wait, "env": env, "kubectl": kubectl, "helm": helm,
	"exec": execute, "load-image": loadImage, "restart": restart, "stop": stop, "start": start,
	"logs": logs, "save-logs": saveLogs, "configure-scheduler": configureScheduler,
}

func up(ctx context.Context, o *options, _ []string) error {
	c, err := cluster.Up(ctx, o.Options)
	if err != nil {
		return err
	}
	fmt.Printf("KUBECONFIG=%s\n", c.Kubeconfig())
	return nil
}

func down(_ context.Context, o *options, _ []string) error {
	dir, err := o.Folder()
	if err != nil {
		return err
	}
	return cluster.Down(dir, os.Stderr)
}

func status(ctx context.Context, o *options, _ []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	components, err := c.Status(ctx)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tCOMPONENT\tSTATE\tPID\tSTARTS\tLAST EXIT")
	for _, s := range components {
		state := "stopped"
		if s.Running {
			state = "running"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%s\n", s.Machine, s.Name, state, s.PID, s.Starts, s.Exit)
	}
	table.Flush()
	fmt.Printf("memory: %s %d MiB", c.Head.Name, c.Memory(0)>>20)
	for i, m := range c.Nodes {
		fmt.Printf(", %s %d MiB", m.Name, c.Memory(i+1)>>20)
	}
	fmt.Println()
	if err == nil && !c.Ready {
		err = errors.New("the cluster never became ready")
	}
	return err
}

func wait(ctx context.Context, o *options, _ []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

func env(_ context.Context, o *options, _ []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	for _, each := range c.Env() {
		name, value, _ := strings.Cut(each, "=")
		if name == "PATH" {
			value = c.BinDir() + ":$PATH"
		}
		fmt.Printf("export %s=\"%s\"\n", name, value)
	}
	return nil
}

func kubectl(ctx context.Context, o *options, args []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	return become(c.KubectlCommand(ctx, args...))
}

func helm(ctx context.Context, o *options, args []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	return become(c.HelmCommand(ctx, args...))
}

func execute(ctx context.Context, o *options, args []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"/bin/bash"}
	}
	cmd, err := c.NodeCommand(ctx, o.nodeOr(1), args...)
	if err != nil {
		return err
	}
	return become(cmd)
}

func loadImage(ctx context.Context, o *options, args []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("load-image needs at least one file")
	}
	var nodes []int
	if o.node > 0 {
		nodes = []int{o.node}
	}
	for _, file := range args {
		if err := c.LoadImage(ctx, file, nodes...); err != nil {
			return err
		}
	}
	return nil
}

func restart(ctx context.Context, o *options, args []string) error {
	return control(o, args, func(c *cluster.Cluster, name string) error {
		number, err := o.signalNumber()
		if err != nil {
			return err
		}
		return c.Restart(ctx, name, o.nodeOr(1), number)
	})
}

func stop(ctx context.Context, o *options, args []string) error {
	return control(o, args, func(c *cluster.Cluster, name string) error {
		number, err := o.signalNumber()
		if err != nil {
			return err
		}
		return c.Stop(ctx, name, o.nodeOr(1), number)
	})
}

func start(ctx context.Context, o *options, args []string) error {
	return control(o, args, func(c *cluster.Cluster, name string) error {
		return c.Start(ctx, name, o.nodeOr(1))
	})
}

func control(o *options, args []string, act func(*cluster.Cluster, string) error) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("the command needs the name of a component")
	}
	for _, name := range args {
		if err := act(c, name); err != nil {
			return err
		}
	}
	return nil
}

func configureScheduler(ctx context.Context, o *options, args []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return errors.New("the command needs one configuration file")
	}
	config, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	return c.ConfigureScheduler(ctx, string(config))
}

func logs(ctx context.Context, o *options, args []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return fmt.Errorf("logs needs the name of one component, not %q", strings.Join(args, " "))
	}
	path, err := c.LogPath(args[0], o.nodeOr(1))
	if err != nil {
		return err
	}
	argv := []string{"cat", path}
	if o.follow {
		argv = []string{"tail", "-n", "+1", "-F", path}
	}
	return become(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

func saveLogs(_ context.Context, o *options, args []string) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return errors.New("the command needs the folder to which it saves the logs")
	}
	return c.SaveLogs(args[0])
}
